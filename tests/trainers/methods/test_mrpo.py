"""MRPO: the card's numbers, GRPO without a bonus, nothing for wrong answers, and ranks of short, masked and repeated states."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.trainers.methods.batches import rollout_batch
from trainers.maths.advantages import z_score
from trainers.maths.spectrum import exponential_entropy
from trainers.methods.group.mrpo import MRPO, Config, compute_state_novelty, norm_rank, rank_bonus, smallest_window_rank, trajectory_ranks


def test_the_worked_examples():
    assert exponential_entropy(torch.tensor([2.0, 1, 1])).item() == pytest.approx(2.8284, abs=1e-4)
    assert compute_state_novelty(torch.tensor([[4.0, 3.0]]), torch.zeros(2), torch.tensor([[1.0], [0.0]])).item() == pytest.approx(0.6)
    correct, ranks = torch.tensor([True, True, False, True]), torch.tensor([10.0, 20, 30, 15])
    assert norm_rank(ranks).tolist() == [0, 0.5, 1, 0.25]
    rewards = correct.float() + rank_bonus(correct, ranks, 0.5)
    assert rewards.tolist() == [1, 1.25, 0, 1.125]
    assert z_score(rewards, 4, epsilon=0.0, ddof=0).tolist() == pytest.approx([0.3156, 0.8206, -1.7042, 0.5681], abs=1e-4)


def test_the_narrowest_window_decides():
    wide, flat = torch.eye(4), torch.ones(4, 4)
    assert smallest_window_rank(wide, 4) == pytest.approx(4.0)
    assert smallest_window_rank(torch.cat([wide, flat]), 4) == pytest.approx(1.0)
    assert smallest_window_rank(wide[:2], 4) == pytest.approx(2.0)  # shorter than the window: one window


def test_one_token_and_masked_rows_have_a_rank():
    hidden = torch.randn(3, 5, 4, generator=torch.Generator().manual_seed(0))
    mask = torch.tensor([[1.0, 1, 1, 0, 1], [1, 0, 0, 0, 0], [0, 0, 0, 0, 0]])
    ranks = trajectory_ranks(hidden, mask, 3)
    assert ranks[0] > 1
    assert ranks[1:].tolist() == pytest.approx([1.0, 0.0])
    assert norm_rank(ranks).tolist() == [1.0, 0.0, 0.0]
    assert norm_rank(torch.zeros(2)).tolist() == [0.0, 0.0]
    assert norm_rank(torch.full((2,), 0.7)).tolist() == [0.0, 0.0]


@settings(deadline=None)
@given(st.lists(st.floats(1, 8, width=32), min_size=4, max_size=4), st.permutations(range(4)), st.floats(0.1, 9), st.floats(0, 5))
def test_only_the_order_and_spacing_of_ranks_count(ranks, order, scale, shift):
    ranks = torch.tensor(ranks, dtype=torch.double)
    made = norm_rank(ranks)
    assert ((made >= 0) & (made <= 1)).all()
    assert torch.equal(norm_rank(ranks[list(order)]), made[list(order)])
    if float(ranks.max() - ranks.min()) > 1e-3:
        assert torch.allclose(norm_rank(ranks * scale + shift), made, atol=1e-6)


@given(st.floats(0.1, 100), st.integers(0, 99))
def test_a_rank_does_not_know_the_scale(scale, seed):
    states = torch.randn(6, 4, generator=torch.Generator().manual_seed(seed))
    assert smallest_window_rank(states * scale, 3) == pytest.approx(smallest_window_rank(states, 3), rel=1e-5)


def test_without_alpha_it_is_grpo_and_wrong_answers_never_earn():
    batch = rollout_batch([1, 0, 1, 0], 4, mask=torch.ones(4, 9), hidden=torch.randn(4, 9, 5, generator=torch.Generator().manual_seed(1)))
    assert torch.equal(MRPO(Config(alpha=0.0)).rewards(batch, batch.reward), batch.reward)
    made = MRPO(Config(alpha=0.5, window=3)).rewards(batch, batch.reward)
    assert made[[1, 3]].tolist() == [0, 0]
    assert (made[[0, 2]] >= 1).all()


@pytest.mark.training
def test_two_real_steps(two_steps):
    trained = two_steps("mrpo", {"window": 4}, base="grpo")
    for step in trained.steps:
        assert 1 <= step["mrpo/rank"] <= 4
    for rollout in trained.rollouts:
        earned = rollout.shaped["mrpo"] - rollout.reward
        assert 0 <= earned <= 0.5 + 1e-6
        assert earned == 0 or rollout.rewards["correct"] == 1
