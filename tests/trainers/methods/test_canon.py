"""CANON: the card's numbers, Dr. GRPO at mu = 1/2, the schedules with their corrections, and what holds for every group."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.trainers.methods.batches import rollout_batch
from trainers.maths.advantages import centre_by_group
from trainers.methods.group.canon import CANON, Config, compute_conditional_advantages, cosine_intra, high_half, scheduled_mu

GROUPS = st.lists(st.floats(-2, 2, width=32), min_size=4, max_size=4)
REWARDS, HIGH = torch.tensor([1.0, 0, 1, 1]), torch.tensor([False, False, True, True])


@pytest.mark.parametrize(
    ("mu", "alpha", "prefer_high", "expected"),
    [
        (1.0, 1.0, False, [0, -1, 0.5, 0.5]),
        (0.0, 1.0, False, [0.5, -0.5, 0, 0]),
        (0.5, 1.0, False, [0.25, -0.75, 0.25, 0.25]),
        (1.0, 0.8, False, [0.2, -0.8, 0.3, 0.3]),
        (1.0, 0.8, True, [-0.2, -1.0, 0.6, 0.6]),
    ],
)
def test_the_worked_examples(mu, alpha, prefer_high, expected):
    assert high_half(torch.tensor([10.0, 20, 30, 40]), 4).tolist() == HIGH.tolist()
    assert compute_conditional_advantages(REWARDS, HIGH, 4, mu, alpha, prefer_high).tolist() == pytest.approx(expected, abs=1e-6)


@given(GROUPS, GROUPS)
def test_in_equal_shares_it_is_the_centred_reward(rewards, metric):
    rewards = torch.tensor(rewards)
    made = compute_conditional_advantages(rewards, high_half(torch.tensor(metric), 4), 4, 0.5)
    assert torch.allclose(made, centre_by_group(rewards, 4), atol=1e-6)


@given(GROUPS, st.permutations(range(4)), st.permutations([1.0, 2.0, 3.0, 4.0]), st.floats(0, 1), st.floats(-3, 3))
def test_it_follows_its_members_and_ignores_a_shift(rewards, order, metric, mu, shift):
    rewards, metric, order = torch.tensor(rewards), torch.tensor(metric), list(order)
    made = compute_conditional_advantages(rewards, high_half(metric, 4), 4, mu)
    assert torch.allclose(compute_conditional_advantages(rewards[order], high_half(metric[order], 4), 4, mu), made[order], atol=1e-6)
    assert torch.allclose(compute_conditional_advantages(rewards + shift, high_half(metric, 4), 4, mu), made, atol=1e-5)


def test_odd_groups_ties_and_groups_of_one():
    assert high_half(torch.tensor([5.0, 5, 5]), 3).tolist() == [False, True, True]  # ties keep the order of the batch
    assert compute_conditional_advantages(torch.full((3,), 0.7), torch.tensor([False, True, True]), 3, 1.0).tolist() == pytest.approx(
        [0, 0, 0], abs=1e-6
    )
    assert compute_conditional_advantages(torch.tensor([1.0, 0.3]), high_half(torch.tensor([1.0, 2.0]), 1), 1, 0.7).tolist() == [0, 0]


def test_leaning_speaks_in_groups_where_all_are_right():
    made = compute_conditional_advantages(torch.ones(4), HIGH, 4, 1.0, alpha=0.8)
    assert made.tolist() == pytest.approx([0.2, 0.2, -0.2, -0.2])


def test_the_cosine_restarts_are_those_of_the_code():
    """Correction to the card: cycles of 40 steps after 30 of warm-up, for ever; the mirror's warm-up falls from 1 to 0."""
    assert [round(cosine_intra(step, False), 4) for step in (0, 14, 29, 30, 50, 69, 70, 190)] == [0.02, 0.3, 0.6, 0.6, 0.3, 0.0009, 0.6, 0.6]
    assert [round(cosine_intra(step, True), 4) for step in (0, 14, 29, 30, 50, 70)] == [0.9667, 0.5, 0.0, 0.0, 0.3, 0.0]


def test_the_batch_reward_can_be_the_weight():
    assert scheduled_mu("first intra, later inter", 0.3, 1, 0.8) == pytest.approx(0.8)
    assert scheduled_mu("first inter, later intra", 0.3, 1, 0.8) == pytest.approx(0.2)
    assert scheduled_mu("first intra, later inter", 0.3, 1, 7.0) == 1.0
    assert scheduled_mu("constant", 0.3, 1, 0.8) == 0.3


def test_only_entropy_asks_for_a_forward_pass():
    assert not CANON(Config()).needs
    assert CANON(Config(metric="entropy")).needs == {"logprobs"}
    assert not CANON.needs


def test_the_hook_splits_by_length_and_masks_count():
    mask = torch.tensor([[1.0, 1, 1, 1], [1, 1, 1, 0], [1, 1, 0, 0], [1, 0, 0, 0]])
    method = CANON(Config())
    made = method.advantages(rollout_batch([1, 1, 0, 1], 4, mask=mask), torch.zeros(4))
    assert made.tolist() == pytest.approx([0.5, 0.5, -1, 0])
    logged = method.collect()
    assert (logged["reward_low"], logged["reward_high"], logged["high_pays"]) == (0.5, 1.0, 0.5)
    assert (logged["metric_low"], logged["metric_high"]) == (1.5, 3.5)


@pytest.mark.training
@pytest.mark.parametrize("metric", ["length", "entropy"])
def test_two_real_steps(two_steps, metric):
    trained = two_steps("canon", {"metric": metric}, base="dr-grpo", training__max_steps=1)
    assert trained.steps[0]["canon/metric_low"] <= trained.steps[0]["canon/metric_high"]
    for key in {(r.step, r.group) for r in trained.rollouts}:
        group = sorted((r for r in trained.rollouts if (r.step, r.group) == key), key=lambda r: r.sample)
        by = [r.length if metric == "length" else r.mean_entropy for r in group]
        expected = compute_conditional_advantages(
            torch.tensor([r.reward for r in group]), high_half(torch.tensor(by, dtype=torch.float32), 4), 4, 1.0
        )
        assert [r.contributions["canon"] for r in group] == pytest.approx(expected.tolist(), abs=1e-5)
