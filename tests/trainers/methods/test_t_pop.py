"""T-POP: the card's numbers, arms that are one without a bonus, a taste that clicks teach, and held-out prompts that teach nothing."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.trainers.methods.stacks import small_run
from trainers.contract.problems import SpecError
from trainers.methods.prompts.t_pop import TPOP, Arm, Config, fit_taste, measure_bonus, update_inverse
from trainers.policies.next_tokens import read_next_tokens
from trainers.tasks.mini_gsm import MiniGsm
from trainers.worlds.search import Search

EXAMPLES = MiniGsm().examples("train", 2, 0, "easy")


def make_method(**config):
    run = small_run()
    method = TPOP(Config(candidates=4, **config))
    method.prepare(run)
    method.probes = torch.zeros(0, len(method.theta))  # sampling them takes a spec
    return method, run


def open_session(run, learns=True, tokens=6):
    session = run.session(EXAMPLES, "t-pop", group_size=2 if learns else 1, max_tokens=tokens)
    session.learns = learns
    return session


def test_the_cards_numbers():
    assert measure_bonus(torch.tensor([[1.0, 0.0]]), torch.eye(2) / 2).item() == pytest.approx(0.7071, abs=1e-4)
    assert 0.3 + 0.5 * 0.4 == 0.5  # pi + w r
    assert -torch.nn.functional.logsigmoid(torch.tensor(0.3)).item() == pytest.approx(0.5544, abs=1e-4)


@given(st.integers(0, 99))
def test_the_inverse_is_that_of_the_sum(seed):
    gaps = torch.randn(5, 3, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    inverse = torch.eye(3, dtype=torch.float64) / 0.5
    for gap in gaps:
        before = measure_bonus(gap[None], inverse)
        inverse = update_inverse(inverse, gap)
        assert measure_bonus(gap[None], inverse) <= before
    assert torch.allclose(inverse, torch.linalg.inv(0.5 * torch.eye(3, dtype=torch.float64) + gaps.T @ gaps))


def test_a_taste_is_where_the_penalised_likelihood_is_largest_and_ranks_what_taught_it():
    gaps = torch.randn(40, 4, generator=torch.Generator().manual_seed(0)) + torch.tensor([1.0, 0, 0, 0])
    theta = fit_taste(gaps, 0.1).double().requires_grad_()
    loss = -torch.nn.functional.logsigmoid(gaps.double() @ theta).sum() + 0.1 * theta.square().sum()
    loss.backward()
    assert theta.grad.abs().max() < 1e-4
    assert ((gaps @ theta.float().detach()) > 0).float().mean() > 0.8


def test_the_states_of_candidates_are_those_of_whole_texts():
    run = small_run()
    states, chances = read_next_tokens(run.model, [3, 4, 5], [6, 7])
    whole = run.model(input_ids=torch.tensor([[3, 4, 5, 7]]), output_hidden_states=True)
    assert torch.allclose(states[1], whole.hidden_states[-1][0, -1], atol=1e-5)
    assert torch.allclose(chances[1], torch.softmax(whole.logits[0, -1], -1), atol=1e-5)
    assert torch.allclose(chances.sum(1), torch.ones(2))


def test_features_are_the_mean_over_the_answer():
    arm = Arm([1], torch.full((4,), 0.25), torch.zeros(4))
    assert arm.features.tolist() == [0] * 4
    states = torch.tensor([[2.0, 0, 0, 0], [4.0, 0, 0, 0]])
    for state in states:
        expected = arm.extend_features(state[None])[0]
        arm.append_token(2, state, arm.chances, ends=[3])
        assert torch.equal(arm.features, expected)
    assert arm.features.tolist() == [1.5, 0, 0, 0]  # (2 + 4) / 2, by the root of 4
    assert not arm.ended


def test_without_a_bonus_the_arms_are_the_same_and_teach_nothing():
    method, run = make_method(bonus=0.0)
    made = method.rollout(open_session(run))
    assert [one.ids for one in made[::2]] == [one.ids for one in made[1::2]]
    assert method.gaps == []
    assert not method.theta.any()
    logged = method.collect()
    assert logged["same"] == 1
    assert logged["length_exploit"] == logged["length_explore"]


def test_without_a_weight_both_arms_are_greedy():
    method, run = make_method(weight=0.0)
    made = method.rollout(open_session(run))
    prompt = made[0].prompt_ids
    assert made[0].ids == made[1].ids
    for place, token in enumerate(made[0].ids):
        logits = run.model(input_ids=torch.tensor([[*prompt, *made[0].ids[:place]]])).logits[0, -1]
        assert int(logits.argmax()) == token
        assert made[0].logprobs[place] == pytest.approx(torch.log_softmax(logits, -1)[token].item(), abs=1e-3)


def test_clicks_teach_the_head_and_survive_a_checkpoint(monkeypatch):
    method, run = make_method(bonus=5.0)
    monkeypatch.setattr(method, "prefers_first", lambda lengths: True)
    method.rollout(open_session(run))
    assert len(method.gaps) == 2
    assert (torch.tensor(method.gaps) @ method.theta > 0).all()
    other, _ = make_method()
    other.restore(method.state())
    assert torch.equal(other.theta, method.theta)
    assert torch.equal(other.inverse, method.inverse)
    assert other.gaps == method.gaps


def test_held_out_prompts_get_the_exploit_arm_alone_and_teach_nothing():
    method, run = make_method(bonus=5.0)
    before = method.inverse.clone()
    made = method.rollout(open_session(run, learns=False))
    assert [one.ids for one in made] == [one.ids for one in make_method(bonus=0.0)[0].rollout(open_session(run))[::2]]
    assert torch.equal(method.inverse, before)
    assert method.gaps == []


def test_a_user_likes_short_answers_or_long_ones():
    assert [TPOP().prefers_first(pair) for pair in ((3, 5), (5, 3), (4, 4))] == [True, False, None]
    assert TPOP(Config(user="long")).prefers_first((3, 5)) is False
    assert TPOP().prefers_first((0, 9)) is TPOP(Config(user="long")).prefers_first((0, 9)) is False
    assert TPOP().prefers_first((0, 0)) is None


def test_a_task_of_several_turns_is_refused(monkeypatch):
    run = small_run()
    monkeypatch.setattr(run.attempt, "task", Search())
    with pytest.raises(SpecError, match="several turns"):
        TPOP().prepare(run)


@pytest.mark.training
def test_two_real_rounds(two_steps):
    sizes = {
        "training__per_device_train_batch_size": 4,
        "training__num_generations": 2,
        "training__max_completion_length": 12,
        "training__prompts": 8,
    }
    trained = two_steps("t-pop", {"candidates": 3}, trainer="procedure", policy={"kind": "tiny", "cold_start": False}, **sizes)
    for step in trained.steps:
        assert {"t-pop/length_exploit", "t-pop/length_explore", "t-pop/bonus", "t-pop/clicks"} <= set(step)
