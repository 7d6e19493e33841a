"""Stratified GRPO: the card's numbers, GRPO at alpha = 0, the identity of the bias, and what holds for every group."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.trainers.methods.batches import rollout_batch
from trainers.maths.advantages import z_score
from trainers.maths.strata import mean_within, strata_of
from trainers.methods.group.stratified_grpo import Config, StratifiedGRPO, blend_advantages, cross_stratum_bias

REWARDS, KEYS = torch.tensor([0.0, 0, 1, 0, 1, 1]), torch.tensor([0, 0, 0, 1, 1, 1])
ROWS = st.lists(st.tuples(st.integers(0, 2), st.sampled_from([0.0, 0.25, 0.5, 1.0])), min_size=6, max_size=6)


def test_the_worked_example():
    group = blend_advantages(REWARDS, KEYS, 6, 0.0, 1e-8, 0)
    own = blend_advantages(REWARDS, KEYS, 6, 1.0, 1e-8, 0)
    assert group.tolist() == pytest.approx([-1, -1, 1, -1, 1, 1])
    assert own.tolist() == pytest.approx([-0.7071, -0.7071, 1.4142, -1.4142, 0.7071, 0.7071], abs=1e-4)
    assert blend_advantages(REWARDS, KEYS, 6, 0.5, 1e-8, 0).tolist() == pytest.approx([-0.8536, -0.8536, 1.2071, -1.2071, 0.8536, 0.8536], abs=1e-4)


@given(ROWS)
def test_without_the_blend_it_is_grpo(rows):
    keys, rewards = torch.tensor([key for key, _ in rows]), torch.tensor([reward for _, reward in rows])
    assert torch.allclose(blend_advantages(rewards, keys, 6, 0.0, 1e-4, 1), z_score(rewards, 6), atol=1e-5)


@given(ROWS, st.permutations(range(6)), st.floats(0.5, 4), st.floats(-2, 2), st.floats(0, 1))
def test_it_follows_its_members_and_ignores_shift_and_scale(rows, order, scale, shift, alpha):
    keys, rewards = torch.tensor([key for key, _ in rows]), torch.tensor([reward for _, reward in rows])
    made = blend_advantages(rewards, keys, 6, alpha, 1e-8, 0)
    order = list(order)
    assert torch.isfinite(made).all()
    assert torch.allclose(blend_advantages(rewards[order], keys[order], 6, alpha, 1e-8, 0), made[order], atol=1e-4)
    assert torch.allclose(blend_advantages(scale * rewards + shift, keys, 6, alpha, 1e-8, 0), made, atol=1e-2)


@given(ROWS)
def test_the_bias_is_what_stratifying_leaves_out_and_accounts_for_the_variance(rows):
    keys, rewards = torch.tensor([key for key, _ in rows]), torch.tensor([reward for _, reward in rows])
    bias, own = cross_stratum_bias(rewards, keys, 6), rewards - mean_within(rewards, strata_of(keys, 6))
    assert torch.allclose(rewards - rewards.mean(), own + bias, atol=1e-6)
    assert ((rewards - rewards.mean()) ** 2).mean() - (own**2).mean() == pytest.approx((bias**2).mean().item(), abs=1e-6)


def test_a_stratum_of_one_and_equal_rewards_teach_nothing():
    assert blend_advantages(torch.tensor([1.0, 0, 0]), torch.tensor([5, 1, 1]), 3, 1.0, 1e-8, 0).tolist() == [0.0] * 3
    assert blend_advantages(torch.tensor([0.7] * 4), torch.tensor([1, 1, 2, 2]), 4, 0.5, 1e-8, 0).tolist() == [0.0] * 4
    assert blend_advantages(torch.tensor([1.0, 0.0]), torch.tensor([1, 1]), 1, 0.5, 1e-8, 1).tolist() == [0.0, 0.0]


def test_strata_are_searches_where_there_are_some_else_steps():
    search, think = "<search>Eva pet</search>", "<think>1+1=2 2+1=3</think>"
    method = StratifiedGRPO(Config())
    assert method.keys(rollout_batch([0, 0], 2, texts=[search * 2, "<answer>cat</answer>"])).tolist() == [2, 0]
    assert method.keys(rollout_batch([0, 0], 2, texts=[think, "x"])).tolist() == [2, 0]
    assert StratifiedGRPO(Config(strata="searches")).keys(rollout_batch([0, 0], 2, texts=[think, "x"])).tolist() == [0, 0]


@pytest.mark.training
def test_two_real_steps(two_steps):
    trained = two_steps("stratified-grpo", {"alpha": 1.0}, base="grpo")
    assert trained.steps[0]["stratified-grpo/strata"] >= 1
    keys = sorted({(r.step, r.group) for r in trained.rollouts})
    for step, group in keys:
        rows = [r for r in trained.rollouts if (r.step, r.group) == (step, group)]
        found = StratifiedGRPO(Config()).keys(rollout_batch([r.reward for r in rows], 4, texts=[r.completion for r in rows]))
        expected = blend_advantages(torch.tensor([r.reward for r in rows]), found, 4, 1.0, 1e-8, 0)
        assert [r.advantage for r in rows] == pytest.approx(expected.tolist(), abs=1e-4)
