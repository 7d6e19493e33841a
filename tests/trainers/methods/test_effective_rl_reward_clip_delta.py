"""PR-Clip-Delta: the card's numbers with its correction, GRPO at a = 0, no pay for repetition, and each token's own return."""

from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.trainers.judge_endpoint import step_endpoint
from tests.trainers.methods.batches import rollout_batch
from trainers.contract.problems import SpecError
from trainers.maths.advantages import z_score
from trainers.methods.group.effective_rl_reward_clip_delta import (
    ClipDelta,
    Config,
    clip_step_scores,
    compute_score_deltas,
    compute_step_returns,
    spread_over_tokens,
    step_rewards,
    token_z_score,
)

SCORES = torch.tensor([0.9, 0.4, 0.8, 0.7])
STEPS = st.lists(st.floats(0, 1, width=32), max_size=8)


def test_the_worked_example():
    assert clip_step_scores(SCORES, 0.5).tolist() == pytest.approx([0, -0.1, 0, 0])
    assert compute_score_deltas(SCORES).tolist() == pytest.approx([0.5, -0.4, 0.8, 0])
    assert compute_score_deltas(SCORES).sum().item() == pytest.approx(0.9)
    made = step_rewards(SCORES, "clip-delta", 0.5)
    assert made.tolist() == pytest.approx([0.1, -0.1, 0, 0])
    assert made.sum().item() == pytest.approx(0.0, abs=1e-6)


@given(STEPS, st.floats(0, 2))
def test_the_return_from_a_step_is_its_own_score_and_the_outcome_except_at_the_last(scores, scale):
    scores = torch.tensor(scores)
    made = compute_step_returns(compute_score_deltas(scores), 1.0, scale)
    assert len(made) == len(scores) + 1
    assert torch.allclose(made[: max(0, len(scores) - 1)], scale * scores[:-1] + 1.0, atol=1e-4)
    assert made[-2:].tolist() == pytest.approx([1.0] * min(2, len(made)))


@given(STEPS.filter(lambda scores: len(scores) >= 2), st.integers(1, 20))
def test_repeating_a_safe_step_pays_in_a_plain_sum_only(scores, times):
    once, more = torch.tensor(scores), torch.tensor([0.9] * times + scores)
    assert step_rewards(more, "sum", 0.5).sum() > step_rewards(once, "sum", 0.5).sum()
    for shape in ("clip", "clip-delta"):
        assert step_rewards(more, shape, 0.5).sum() <= max(0.0, float(step_rewards(once, shape, 0.5).sum())) + 1e-5
    assert step_rewards(more, "delta", 0.5).sum() <= 0.9 + 1e-5


def test_a_token_has_the_return_of_its_step_or_of_the_next():
    values = torch.tensor([3.0, 2.0, 1.0])
    assert spread_over_tokens(values, [-1, 0, 0, -1, 1, -1, -1]).tolist() == [3, 3, 3, 2, 2, 1, 1]
    assert spread_over_tokens(torch.tensor([1.0]), [-1, -1]).tolist() == [1, 1]


@given(st.lists(st.sampled_from([0.0, 0.5, 1.0]), min_size=4, max_size=4), st.lists(st.integers(1, 3), min_size=4, max_size=4))
def test_a_value_for_the_whole_row_is_scored_as_in_grpo(rewards, lengths):
    mask = (torch.arange(3) < torch.tensor(lengths)[:, None]).float()
    made = token_z_score(torch.tensor(rewards)[:, None].expand(4, 3), mask, 4)
    assert torch.allclose(made, z_score(torch.tensor(rewards), 4)[:, None] * mask, atol=1e-4)


@given(st.lists(st.floats(-2, 2, width=32), min_size=12, max_size=12), st.permutations(range(4)), st.floats(-2, 2))
def test_token_scores_follow_their_rows_ignore_a_shift_and_stay_finite(values, order, shift):
    values, mask, order = torch.tensor(values).view(4, 3), torch.tensor([[1.0, 1, 1], [1, 0, 0], [0, 0, 0], [1, 1, 0]]), list(order)
    made = token_z_score(values, mask, 4)
    assert torch.isfinite(made).all()
    assert (made[mask == 0] == 0).all()
    assert torch.allclose(token_z_score(values[order], mask[order], 4), made[order], atol=1e-3)
    assert torch.allclose(token_z_score(values + shift, mask, 4), made, atol=1e-2)


def test_equal_values_empty_groups_and_groups_of_one_teach_nothing():
    assert token_z_score(torch.full((4, 3), 0.7), torch.ones(4, 3), 4).abs().sum() == 0
    assert token_z_score(torch.rand(4, 3), torch.zeros(4, 3), 4).abs().sum() == 0
    assert torch.isfinite(token_z_score(torch.rand(2, 3), torch.ones(2, 3), 1)).all()


def made(config, texts, rewards, ends):
    method = ClipDelta(config)
    return method.advantages(rollout_batch(rewards, len(texts), texts=texts, mask=torch.ones(len(texts), 4), ends=ends), torch.zeros(len(texts)))


def test_without_weight_it_is_grpo_and_a_bad_step_is_marked_down_before_the_answer():
    good, bad = "<think>1+1=2 2+1=3</think>", "<think>1+1=9 2+1=3</think>"
    ends = [[7, 12, 18, 26]] * 4
    texts, rewards = [good, bad, good, bad], [1.0, 1, 0, 0]
    plain = made(Config(scale=0, scorer="arithmetic"), texts, rewards, ends)
    assert torch.allclose(plain, z_score(torch.tensor(rewards), 4)[:, None].expand(4, 4), atol=1e-4)
    shaped = made(Config(scorer="arithmetic"), texts, rewards, ends)
    assert shaped[1, 1] < shaped[0, 1]  # the wrong first step
    assert shaped[1, 2] == shaped[0, 2]  # the last step's own score is paid nowhere
    assert shaped[1, 3] == shaped[0, 3]


def test_a_configured_judge_scores_the_steps():
    with step_endpoint("1+1") as (judge, _):
        method = ClipDelta(Config(scorer="endpoint"))
        method.prepare(SimpleNamespace(judge=judge))
        texts = ["<think>1+1=2 2+1=3</think>", "no working"]
        assert method.scores(rollout_batch([1, 0], 2, texts=texts)) == [[1.0, 0.0], []]
    with pytest.raises(SpecError, match="no judge endpoint"):
        method.prepare(SimpleNamespace(judge=None))


@pytest.mark.training
def test_two_real_steps(two_steps):
    trained = two_steps("effective-rl-reward-clip-delta", {"scale": 1.0})
    name = "effective-rl-reward-clip-delta"
    assert all(step[f"{name}/process"] <= 0 for step in trained.steps)
    assert all(0 <= step[f"{name}/score"] <= 1 for step in trained.steps)
    assert all(rollout.token_advantages for rollout in trained.rollouts)
