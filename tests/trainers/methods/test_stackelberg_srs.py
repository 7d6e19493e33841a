"""SRS: the card's numbers, a self-consistent threshold, and GRPO where a group's rewards have two values or the sigmoid is straight."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.trainers.methods.batches import rollout_batch
from trainers.maths.advantages import z_score
from trainers.methods.group.stackelberg_srs import Config, StackelbergSRS, compute_reward_bounds, soft_threshold, solve_utility_threshold, utility_gap

ONE = torch.ones(1)
ANSWERS = torch.tensor([[0.0, 1.0, 2.0, 3.0]])
GROUPS = st.lists(st.floats(-2, 2, width=32), min_size=4, max_size=4)


def follower(rewards, beta=1.0):
    """Utility of the policy that follows ``rewards`` (M,) from four equally likely answers."""
    return (torch.softmax(rewards / beta, 0) * ANSWERS[0]).sum().item()


def test_the_worked_examples():
    root = solve_utility_threshold(ANSWERS, ONE)
    assert root.item() == pytest.approx(1.9621, abs=1e-4)
    assert follower((ANSWERS[0] > root).float()) == pytest.approx(root.item(), abs=1e-4)  # it delivers what it asks for
    assert follower(ANSWERS[0] / 3) == pytest.approx(1.9041, abs=1e-4)
    assert soft_threshold(ANSWERS, root, ONE, 2.0)[0].tolist() == pytest.approx([0.0194, 0.1274, 0.5189, 0.8885], abs=1e-4)
    assert solve_utility_threshold(ANSWERS, 2 * ONE).item() == pytest.approx(2.4225, abs=1e-4)


def test_no_bounded_reward_beats_the_threshold():
    generator = torch.Generator().manual_seed(0)
    best = solve_utility_threshold(ANSWERS, ONE).item()
    assert max(follower(torch.rand(4, generator=generator)) for _ in range(200)) <= best + 1e-5


@given(GROUPS, st.floats(0.1, 8))
@settings(deadline=None, max_examples=30)
def test_the_threshold_is_a_root_between_mean_and_best(rewards, log_ratio):
    groups = torch.tensor([rewards], dtype=torch.double)
    log_ratios = torch.tensor([log_ratio], dtype=torch.double)
    root = solve_utility_threshold(groups, log_ratios)
    assert groups.mean() - 1e-9 <= root <= groups.max() + 1e-9
    assert utility_gap(groups, root, log_ratios).abs() < 1e-9


@given(GROUPS, st.permutations(range(4)), st.floats(-3, 3))
@settings(deadline=None, max_examples=30)
def test_it_follows_its_members_and_ignores_a_shift(rewards, order, shift):
    groups = torch.tensor([rewards], dtype=torch.double)

    def made(values):
        return soft_threshold(values, solve_utility_threshold(values, ONE.double()), ONE.double(), 10.0)

    assert torch.allclose(made(groups + shift), made(groups), atol=1e-6)
    assert torch.allclose(made(groups[:, list(order)]), made(groups)[:, list(order)], atol=1e-9)


def test_a_bound_is_at_most_twice_the_spread():
    assert compute_reward_bounds(torch.tensor([[0.0, 0.3], [0.0, 3.0], [0.5, 0.5]]), 1.0).tolist() == pytest.approx([0.6, 1.0, 0.0])
    assert Config(beta=0.1).log_ratios(ONE).tolist() == [2.0]


def shaped(rewards, group, **config):
    return StackelbergSRS(Config(**config)).rewards(rollout_batch(rewards, group), torch.tensor(rewards, dtype=torch.float32))


@pytest.mark.parametrize("rewards", [[1.0, 0.2, 0.5, 0.9], [0.1, 0.3, 0.2, 0.0]])
def test_with_a_straight_sigmoid_the_advantages_are_those_of_grpo(rewards):
    made = shaped(rewards, 4, sharpness=0.05)
    assert torch.allclose(z_score(made, 4, epsilon=0.0), z_score(torch.tensor(rewards), 4, epsilon=0.0), atol=1e-2)


def test_right_or_wrong_stays_grpo_under_group_scaling():
    rewards = [1.0, 0, 0, 1, 0, 0, 0, 1]
    assert torch.allclose(z_score(shaped(rewards, 4), 4), z_score(torch.tensor(rewards), 4), atol=1e-3)


@pytest.mark.parametrize(("rewards", "group"), [([0.7] * 4, 4), ([0.7, -1e6], 1), ([1e6, -1e6], 2)])
def test_it_is_finite_and_flat_groups_stay_flat(rewards, group):
    made = shaped(rewards, group, beta=0.001)
    assert torch.isfinite(made).all()
    if min(rewards) == max(rewards):
        assert made.unique().numel() == 1


def test_it_says_where_the_threshold_lies():
    method = StackelbergSRS(Config(sharpness=2.0))
    method.rewards(rollout_batch([0, 1, 2, 3], 4), ANSWERS[0])
    logged = method.collect()
    assert logged["threshold"] == pytest.approx(1.9621, abs=1e-4)
    assert logged["above"] == 0.5
    assert math.isclose(sum(logged[f"shaped/{place:02d}"] for place in range(20)), 1.0, rel_tol=1e-6)


@pytest.mark.training
def test_two_real_steps(two_steps):
    trained = two_steps("stackelberg-srs", {"sharpness": 5.0}, base="dr-grpo", task__rewards={"correct": 1.0, "working": 0.5})
    for key in {(r.step, r.group) for r in trained.rollouts}:
        group = [r for r in trained.rollouts if (r.step, r.group) == key]
        utilities = torch.tensor([[r.reward for r in group]])
        bound = compute_reward_bounds(utilities, 1.0)
        expected = soft_threshold(utilities, solve_utility_threshold(utilities, bound), bound, 5.0)[0]
        assert [r.shaped["stackelberg-srs"] for r in group] == pytest.approx(expected.tolist(), abs=1e-4)
        assert [r.advantage for r in group] == pytest.approx((expected - expected.mean()).tolist(), abs=1e-4)
