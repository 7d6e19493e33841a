"""Kimi k1.5: the card's numbers, Dr. GRPO at tau = 0, a length reward that never pays wrong answers, and iterations that begin where they should."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.trainers.methods.batches import loss_batch, rollout_batch
from trainers.maths.advantages import centre_by_group
from trainers.methods.group.kimi_k15 import Config, KimiK15, exact_baseline, length_reward, mirror_descent_loss
from trainers.methods.history import History, Visit


def test_the_worked_examples():
    log_p = torch.tensor([-2.0], requires_grad=True)
    mirror_descent_loss(torch.tensor([0.75]), log_p, torch.tensor([-2.5]), 0.1).sum().backward()
    assert -log_p.grad.item() == pytest.approx(0.70)
    assert exact_baseline(torch.tensor([1.0, 0, 0, 0]), 4, 0.5)[0].item() == pytest.approx(0.4772, abs=1e-4)
    lengths, right = torch.tensor([100.0, 200, 300]), torch.ones(3, dtype=torch.bool)
    assert length_reward(lengths, right, 3).tolist() == pytest.approx([0.5, 0, -0.5])
    assert length_reward(lengths, ~right, 3).tolist() == pytest.approx([0, 0, -0.5])


def test_at_tau_0_the_first_pass_is_dr_grpo():
    torch.manual_seed(0)
    mask = torch.tensor([[1.0, 1, 1], [1, 0, 0], [1, 1, 0], [0, 0, 0]])
    logprobs = (-torch.rand(4, 3) * mask).requires_grad_()
    advantages = torch.tensor([0.5, -0.5, 0.5, -0.5])
    batch = loss_batch(logprobs, advantages, 4, mask=mask, reference_logprobs=torch.zeros(4, 3), max_tokens=7)
    KimiK15(Config(tau=0.0)).policy_loss(batch).backward()
    ours, logprobs.grad = logprobs.grad, None
    ratio = torch.exp(logprobs - logprobs.detach())
    (-(torch.min(ratio * advantages[:, None], ratio.clamp(0.8, 1.2) * advantages[:, None]) * mask).sum() / (4 * 7)).backward()
    assert torch.allclose(ours, logprobs.grad)


def test_its_gradient_is_that_of_finite_differences():
    torch.manual_seed(0)
    mask = torch.tensor([[1.0, 1, 1], [1, 0, 0], [0, 0, 0]], dtype=torch.double)
    reference = -torch.rand(3, 3, dtype=torch.double)

    def loss(logprobs):
        return KimiK15(Config(tau=2.0)).policy_loss(loss_batch(logprobs, torch.tensor([1.0, -1, 0.5]), 3, mask=mask, reference_logprobs=reference))

    assert torch.autograd.gradcheck(loss, (-torch.rand(3, 3, dtype=torch.double)).requires_grad_())


@given(st.lists(st.floats(-2, 2), min_size=4, max_size=4), st.floats(0.05, 5), st.floats(-3, 3))
def test_the_exact_baseline_lies_between_mean_and_maximum_and_moves_with_a_shift(rewards, tau, shift):
    rewards = torch.tensor(rewards, dtype=torch.double)
    value = exact_baseline(rewards, 4, tau)[0]
    assert rewards.mean() - 1e-6 <= value <= rewards.max() + 1e-6
    assert exact_baseline(rewards + shift, 4, tau)[0].item() == pytest.approx((value + shift).item(), abs=1e-6)


@given(st.lists(st.integers(0, 40), min_size=4, max_size=4), st.lists(st.booleans(), min_size=4, max_size=4), st.permutations(range(4)))
def test_the_length_reward_follows_its_members_and_never_pays_wrong_answers(lengths, right, order):
    lengths, right, order = torch.tensor(lengths, dtype=torch.float32), torch.tensor(right), list(order)
    made = length_reward(lengths, right, 4)
    assert torch.isfinite(made).all()
    assert (made.abs() <= 0.5).all()
    assert (made[~right] <= 0).all()
    assert torch.equal(length_reward(lengths[order], right[order], 4), made[order])


def test_the_length_reward_is_off_at_first():
    mask = torch.tensor([[1.0, 1, 1], [1, 0, 0]])
    early, late = rollout_batch([1, 1], 2, mask=mask, step=5), rollout_batch([1, 1], 2, mask=mask, step=6)
    method = KimiK15(Config(length_weight=1.0, length_from=0.5))
    assert method.rewards(early, early.reward).tolist() == [1, 1]
    assert method.rewards(late, late.reward).tolist() == [0.5, 1.5]


def test_equal_rewards_teach_nothing_with_either_baseline():
    batch = rollout_batch([0.7] * 4, 4)
    assert KimiK15().advantages(batch, torch.zeros(4)).tolist() == [0] * 4
    assert KimiK15(Config(baseline="exact")).advantages(batch, torch.zeros(4)).tolist() == pytest.approx([0] * 4, abs=1e-6)
    assert torch.equal(KimiK15(Config(tau=0.0, baseline="exact")).advantages(batch, torch.zeros(4)), centre_by_group(batch.shaped, 4))


class Run:
    """Policy and reference of two linear layers."""

    def __init__(self):
        self.model, self.reference = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)

    def same(self):
        return torch.equal(self.model.weight, self.reference.weight)


def test_an_iteration_begins_with_its_first_batch_also_after_a_checkpoint():
    run, method = Run(), KimiK15(Config(refresh_every=3, hard_prompts=False))
    method.prepare(run)
    for step in (1, 2, 3):
        method.curriculum(History(4, 10, step=step))
        assert not method.reference(step, None, None)
    assert not run.same()
    resumed = KimiK15(Config(refresh_every=3, hard_prompts=False))
    resumed.restore(method.state())
    resumed.prepare(run)
    assert resumed.curriculum(History(4, 10, step=4)) is None
    assert run.same()
    assert [resumed.reference(step, None, None) for step in (4, 5)] == [True, False]


def test_prompts_are_drawn_by_what_is_left_to_learn():
    method = KimiK15()
    method.prepare(Run())
    history = History(3, 10, step=2)
    history.add(0, Visit(1, 1.0, 1.0))
    history.add(1, Visit(1, 0.25, 0.25))
    assert method.curriculum(history).tolist() == [0, 0.75, 1]


@pytest.mark.training
def test_two_real_steps(two_steps, written_answers):
    config = {"tau": 1.0, "refresh_every": 1, "length_from": 0.0, "length_weight": 0.5}
    training = {"learning_rate": 1e-3, "warmup_steps": 0, "max_steps": 3, "num_iterations": 2}
    trained = two_steps("kimi-k15", config, base="dr-grpo", **{f"training__{name}": value for name, value in training.items()})
    first, second, third = trained.steps
    assert first["kimi-k15/squared_log_ratio"] == pytest.approx(0, abs=1e-6)
    assert second["kimi-k15/squared_log_ratio"] > 1e-4  # the second pass over the first batch
    assert third["kimi-k15/squared_log_ratio"] == pytest.approx(0, abs=1e-6)  # a new iteration, held to its own start
    assert [step["kimi-k15/reference_updated"] for step in trained.steps] == [0, 0, 1]
    for rollout in trained.rollouts:
        assert abs(rollout.shaped["kimi-k15"] - rollout.reward) <= 0.25 + 1e-6
