"""FR-Ponder: the card's numbers, a policy gradient for the controller alone, and a policy that stays as it was."""

import random
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoTokenizer

from tests.trainers.conftest import ensure_cold_start
from tests.trainers.methods.batches import loss_batch, rollout_batch
from trainers.contract.problems import SpecError
from trainers.maths.advantages import compute_trl_advantages
from trainers.methods.context import RunContext
from trainers.methods.prompts.fr_ponder import Config, Controller, FRPonder, charge_steps, normalise_differences, steer_state, sum_action_logprobs
from trainers.methods.session import Session
from trainers.policies.loading import load_model
from trainers.tasks import registry

TASK = registry.get_task("mini_gsm")


def test_the_worked_examples_of_the_card():
    direction = normalise_differences(torch.tensor([[3.0, 4.0], [0.0, 0.0]]))
    assert direction.tolist() == pytest.approx([0.6, 0.8])
    assert steer_state(torch.tensor([[1.0, 0.0]]), direction, 2, 0.5).tolist()[0] == pytest.approx([1.6, 0.8])
    rewards = charge_steps(torch.tensor([1.0, 1, 0, 1]), torch.tensor([2.0, 0, 4, 1]), 4, 0.2)
    assert rewards.tolist() == pytest.approx([0.9, 1.0, -0.2, 0.95])
    assert compute_trl_advantages(rewards, 4, "group").tolist() == pytest.approx([0.4119, 0.5854, -1.4960, 0.4987], abs=1e-3)


@given(st.lists(st.floats(-5, 5), min_size=1, max_size=6))
def test_the_probabilities_of_all_numbers_of_steps_sum_to_one(logits):
    most = len(logits)
    rows = torch.tensor([logits], dtype=torch.float64).expand(most + 1, most)
    assert sum_action_logprobs(rows, torch.arange(most + 1)).exp().sum().item() == pytest.approx(1)


def test_the_gradient_is_that_of_the_sampled_decisions():
    logits = torch.zeros(1, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda values: sum_action_logprobs(values, torch.tensor([1])), logits)
    sum_action_logprobs(logits, torch.tensor([1])).sum().backward()
    assert logits.grad.tolist()[0] == pytest.approx([0.5, -0.5, 0.0])  # went on, halted, never asked


def test_differences_that_cancel_out_steer_nowhere():
    assert normalise_differences(torch.tensor([[1.0, 0], [-1.0, 0]])).tolist() == [0, 0]


def test_a_controller_is_the_same_for_the_same_seed():
    state = torch.randn(2, 8, generator=torch.Generator().manual_seed(0))
    assert torch.equal(Controller(8, 1)(state), Controller(8, 1)(state))
    assert not torch.equal(Controller(8, 1)(state), Controller(8, 2)(state))


@pytest.fixture(scope="module")
def policy():
    folder = ensure_cold_start()
    return load_model(folder, torch.float32).eval(), AutoTokenizer.from_pretrained(folder)


def prepared(policy, task=TASK, **config):
    model, tokenizer = policy
    spec = SimpleNamespace(seed=0, task=SimpleNamespace(difficulty="easy"))
    for layer in model.get_decoder().layers:
        layer._forward_hooks.clear()
        layer._forward_hooks_with_kwargs.clear()
    run = RunContext(SimpleNamespace(task=task, spec=spec, policy=SimpleNamespace(model=model, tokenizer=tokenizer, device=torch.device("cpu"))))
    method = FRPonder(Config(questions=4, contrast="working", **config))
    method.prepare(run)
    return method


def answer(method, seed=0):
    examples = TASK.examples("train", 6, 0, "easy")
    rng = random.Random(seed)
    session = Session(method.run, method.run.model, examples, [one.prompt for one in examples], 2, 1, 1, 1.0, 12, rng)
    torch.manual_seed(0)
    return method.rollout(session)


def test_pondering_steers_what_is_written_and_nothing_else(policy):
    method = prepared(policy, alpha=50.0)
    ids = torch.tensor([method.run.prompt_ids([TASK.examples("train", 1, 0, "easy")[0].prompt])[0]])
    with torch.no_grad():
        loss_pass = method.run.model(input_ids=ids, use_cache=False).logits
        steps = []
        for count in (0, 4):
            method.count_steps = lambda states, count=count: torch.full((len(states),), count)
            steps.append(method.run.model(input_ids=ids, use_cache=True).logits)
    assert torch.allclose(steps[0], loss_pass, atol=1e-5)
    assert torch.allclose(steps[1][:, :-1], loss_pass[:, :-1], atol=1e-5)
    assert not torch.allclose(steps[1][:, -1], loss_pass[:, -1], atol=1e-2)


def test_steps_are_drawn_in_rollouts_and_decided_by_the_threshold_elsewhere(policy):
    method = prepared(policy, steps=3)
    made = answer(method)
    assert {one.notes["ponder"] for one in made} <= {0, 1, 2, 3}
    assert [one.notes["ponder"] for one in made] == [one.notes["ponder"] for one in answer(method)]
    with torch.no_grad():
        method.controller.layers[-1].bias.fill_(100.0)
    assert method.count_steps(torch.randn(5, 128)).tolist() == [3] * 5
    with torch.no_grad():
        method.controller.layers[-1].bias.fill_(-100.0)
    assert method.count_steps(torch.randn(5, 128)).tolist() == [0] * 5


def test_the_controller_learns_to_halt_where_halting_is_paid(policy):
    method = prepared(policy, learning_rate=0.05)
    states = torch.randn(8, 128, generator=torch.Generator().manual_seed(1))
    steps = torch.tensor([0, 1, 2, 4] * 2)
    notes = [{"ponder": count, "state": state} for count, state in zip(steps.tolist(), states.tolist(), strict=True)]
    advantages = -(steps - steps.float().mean())
    batch = loss_batch(torch.zeros(8, 3, requires_grad=True), advantages, rollout=rollout_batch([1.0] * 8, 4, notes=notes))
    before = method.controller(states).mean().item()
    weights = [parameter.clone() for parameter in method.run.model.parameters()]
    for _ in range(5):
        method.policy_loss(batch).backward()
        method.gradients(method.run.model)
    assert method.controller(states).mean().item() < before - 0.1
    assert all(torch.equal(old, new) for old, new in zip(weights, method.run.model.parameters(), strict=True))
    assert batch.logprobs.grad is None


def test_splitting_a_batch_changes_no_gradient(policy):
    method = prepared(policy)
    states = torch.randn(4, 128, generator=torch.Generator().manual_seed(2))
    notes = [{"ponder": place, "state": state} for place, state in enumerate(states.tolist())]
    whole = loss_batch(torch.zeros(4, 3), torch.tensor([1.0, -1.0, 0.5, 2.0]), rollout=rollout_batch([1.0] * 4, 4, notes=notes))
    method.policy_loss(whole).backward()
    expected = [parameter.grad.clone() for parameter in method.controller.parameters()]
    method.optimizer.zero_grad()
    for rows in ([3, 0], [1, 2]):
        part = loss_batch(torch.zeros(2, 3), whole.advantages[rows], rollout=whole.rollout, rows=torch.tensor(rows))
        (method.policy_loss(part) / 2).backward()
    assert all(torch.allclose(one, own.grad, atol=1e-6) for one, own in zip(expected, method.controller.parameters(), strict=True))


def test_what_it_remembers_goes_on_exactly(policy):
    method, other = prepared(policy), prepared(policy)
    with torch.no_grad():
        method.controller.layers[-1].bias.fill_(0.7)
    other.restore(method.state())
    assert torch.equal(other.controller.layers[-1].bias, method.controller.layers[-1].bias)


def test_tasks_of_several_turns_are_refused(policy):
    with pytest.raises(SpecError, match="several turns"):
        prepared(policy, task=registry.get_task("kb"))


@pytest.mark.training
def test_two_real_steps(two_steps):
    trained = two_steps("fr-ponder", {"questions": 4, "contrast": "working"}, evaluation={"prompts": 8})
    for rollout in trained.rollouts:
        assert rollout.shaped["fr-ponder"] <= rollout.reward
    assert 0 <= trained.steps[0]["fr-ponder/steps"] <= 4
    start = load_model(ensure_cold_start(), torch.float32).state_dict()
    final = load_model(trained.folder / "final", torch.float32).state_dict()
    assert all(torch.equal(value, final[name]) for name, value in start.items())  # the policy is frozen
    remembered = torch.load(next((trained.folder / "checkpoints").glob("*/methods.pt")), weights_only=True)["methods"]["fr-ponder"]
    assert any(not torch.equal(value, Controller(128, 0).state_dict()[name]) for name, value in remembered["controller"].items())
