"""RS-GRPO: the card's numbers, GRPO at b = 0, and what holds for every group."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.trainers.methods.batches import rollout_batch
from trainers.maths.advantages import centre_by_group
from trainers.methods.group.rs_grpo import RSGRPO, Config, risk_sensitive

GROUPS = st.lists(st.floats(-2, 2, width=32), min_size=4, max_size=4)


def test_the_worked_examples():
    assert risk_sensitive(torch.tensor([1.0, 0, 0, 0]), 4, 2.0).tolist() == pytest.approx([0.9225, -0.3075, -0.3075, -0.3075], abs=1e-4)
    assert risk_sensitive(torch.tensor([1.0, 1, 1, 0]), 4, 2.0).tolist() == pytest.approx([0.1379, 0.1379, 0.1379, -0.4137], abs=1e-4)


@given(GROUPS)
def test_without_risk_it_is_the_centred_reward(rewards):
    rewards = torch.tensor(rewards)
    assert torch.allclose(risk_sensitive(rewards, 4, 0.0), centre_by_group(rewards, 4))
    assert torch.allclose(risk_sensitive(rewards, 4, 1e-3), centre_by_group(rewards, 4), atol=1e-2)  # and comes near it as b falls


@given(GROUPS, st.permutations(range(4)), st.floats(0.1, 8), st.floats(-3, 3))
def test_it_sums_to_zero_follows_its_members_and_ignores_a_shift(rewards, order, risk, shift):
    rewards = torch.tensor(rewards)
    made = risk_sensitive(rewards, 4, risk)
    assert made.sum().abs() < 1e-3 * (1 + made.abs().max())
    assert torch.allclose(risk_sensitive(rewards[list(order)], 4, risk), made[list(order)], atol=1e-4, rtol=1e-3)
    assert torch.allclose(risk_sensitive(rewards + shift, 4, risk), made, atol=1e-2, rtol=1e-2)


@pytest.mark.parametrize("rewards", [[0.7] * 4, [1e6] * 4])
def test_a_group_of_equal_rewards_teaches_nothing(rewards):
    assert risk_sensitive(torch.tensor(rewards), 4, 2.0).tolist() == [0.0] * 4


def test_a_group_of_one_teaches_nothing():
    assert risk_sensitive(torch.tensor([1.0, 0.0]), 1, 2.0).tolist() == [0.0, 0.0]


def test_the_hook_uses_the_shaped_reward_and_says_what_it_did():
    batch = rollout_batch([1, 0, 0, 0], 4)
    method = RSGRPO(Config(risk=2.0))
    assert method.advantages(batch, torch.zeros(4))[0].item() == pytest.approx(0.9225, abs=1e-4)
    logged = method.collect()
    assert logged["advantage_right"] == pytest.approx(0.9225, abs=1e-4)
    assert logged["solve_rate"] == 0.25


@pytest.mark.training
def test_two_real_steps(two_steps):
    trained = two_steps("rs-grpo", {"risk": 2.0}, base="dr-grpo")
    for rollout in trained.rollouts:
        assert list(rollout.contributions) == ["base", "rs-grpo"]
        assert rollout.advantage == pytest.approx(rollout.contributions["rs-grpo"])
    groups = [[r for r in trained.rollouts if (r.step, r.group) == key] for key in {(r.step, r.group) for r in trained.rollouts}]
    for group in groups:
        expected = risk_sensitive(torch.tensor([r.reward for r in group]), len(group), 2.0)
        assert [r.advantage for r in group] == pytest.approx(expected.tolist(), abs=1e-4)
    assert "rs-grpo/solve_rate" in trained.steps[0]
