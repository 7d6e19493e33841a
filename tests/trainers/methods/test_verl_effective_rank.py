"""VERL: the card's numbers, GRPO without weight and in the first step, a bonus within its bounds, and running means one step behind."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.trainers.methods.batches import rollout_batch
from trainers.maths.spectrum import effective_rank, exponential_entropy
from trainers.methods.group.verl_effective_rank import (
    VERL,
    Config,
    compute_auxiliary_signal,
    compute_rank_bonus,
    last_tokens,
    prefix_ranks,
    velocity_and_acceleration,
)


def test_the_worked_examples():
    assert exponential_entropy(torch.tensor([1.0, 1.0])).item() == pytest.approx(2.0)
    assert exponential_entropy(torch.tensor([3.0, 1.0])).item() == pytest.approx(1.7548, abs=1e-4)
    velocity, acceleration = velocity_and_acceleration(torch.tensor([[10.0, 12, 15, 16]]))
    assert (velocity.item(), acceleration.item()) == (pytest.approx(3.2222, abs=1e-4), pytest.approx(0.8333, abs=1e-4))
    phi, weight = compute_auxiliary_signal(torch.tensor([1.0]), torch.tensor([-0.5]), torch.tensor([0.5]), 2.0)
    assert (weight.item(), phi.item()) == (pytest.approx(0.7311, abs=1e-4), pytest.approx(0.4325, abs=1e-4))
    advantages = torch.tensor([-1.0, 0.6])
    assert (advantages + compute_rank_bonus(advantages, phi, 1.0, 2.0)).tolist() == pytest.approx([-0.5675, 0.9], abs=1e-4)


def test_windows_need_more_than_a_multiple_of_the_stride():
    """Correction to the card: at T = 2 s there is one window, so no velocity; at T = 3 s no acceleration."""
    torch.manual_seed(0)
    hidden = torch.randn(3, 7, 5)
    mask = torch.tensor([[1.0] * 4 + [0] * 3, [1.0] * 6 + [0], [1.0] * 7])
    ranks = prefix_ranks(hidden, mask, 2)
    assert (~ranks.isnan()).sum(1).tolist() == [1, 2, 3]
    velocity, acceleration = velocity_and_acceleration(ranks)
    assert velocity[0] == 0
    assert acceleration[:2].tolist() == [0, 0]
    assert velocity[1] != 0
    assert acceleration[2] != 0
    assert ranks[2, 1].item() == pytest.approx(effective_rank(hidden[2:, :5], torch.ones(1, 5)).item())


def test_short_constant_and_masked_rows_have_a_rank():
    hidden = torch.ones(3, 4, 6) * 0.7
    mask = torch.tensor([[1.0, 1, 1, 1], [1, 0, 0, 0], [0, 0, 0, 0]])
    assert effective_rank(hidden, mask).tolist() == [1.0, 0.0, 0.0]
    for only in (mask[1:], mask[2:]):  # all of the batch too short for a window
        found = velocity_and_acceleration(prefix_ranks(hidden[: len(only)], only, 5))
        assert [values.tolist() for values in found] == [[0.0] * len(only)] * 2


@settings(deadline=None)
@given(st.integers(0, 999), st.floats(0.1, 50), st.floats(-5, 5), st.permutations(range(6)))
def test_the_rank_knows_neither_scale_nor_shift_nor_order(seed, scale, shift, order):
    hidden = torch.randn(2, 6, 4, generator=torch.Generator().manual_seed(seed), dtype=torch.double)
    mask = torch.ones(2, 6)
    rank = effective_rank(hidden, mask)
    assert ((rank >= 1) & (rank <= 4 + 1e-9)).all()
    assert torch.allclose(effective_rank(hidden[:, list(order)] * scale + shift, mask), rank)


@given(st.lists(st.floats(-3, 3), min_size=4, max_size=4), st.lists(st.floats(-1, 1), min_size=4, max_size=4), st.floats(0, 5), st.floats(1, 9))
def test_the_bonus_stays_in_its_bounds_and_turns_no_sign(advantages, phi, scale, kappa):
    advantages = torch.tensor(advantages, dtype=torch.double)
    made = compute_rank_bonus(advantages, torch.tensor(phi, dtype=torch.double), scale, kappa)
    assert ((made >= 0) & (made <= advantages.abs() / kappa)).all()
    assert (torch.sign(advantages + made) * torch.sign(advantages) >= 0).all()


def batch_of(seed):
    return rollout_batch([1, 0, 0, 1], 4, mask=torch.ones(4, 9), hidden=torch.randn(4, 9, 5, generator=torch.Generator().manual_seed(seed)))


def test_without_weight_and_in_the_first_step_it_is_grpo():
    given_ = torch.tensor([1.0, -1, -1, 1])
    plain = VERL(Config(weight=0.0, stride=2))
    for seed in range(3):
        assert torch.equal(plain.advantages(batch_of(seed), given_), given_)
    method = VERL(Config(stride=2))
    assert torch.equal(method.advantages(batch_of(0), given_), given_)
    assert not torch.equal(method.advantages(batch_of(1), given_), given_)


def test_the_running_means_follow_one_step_behind_and_survive_a_checkpoint():
    method = VERL(Config(stride=2, rate=0.5))
    method.advantages(batch_of(0), torch.ones(4))
    assert method.baselines["er"] == 0.0
    first = method.previous["er"]
    method.advantages(batch_of(1), torch.ones(4))
    assert method.baselines["er"] == pytest.approx(0.5 * first)
    resumed = VERL(Config(stride=2, rate=0.5))
    resumed.restore(method.state())
    assert torch.equal(resumed.advantages(batch_of(2), torch.ones(4)), method.advantages(batch_of(2), torch.ones(4)))


def test_on_the_last_token_the_others_keep_their_advantage():
    mask = torch.tensor([[1.0, 1, 0], [1, 1, 1], [0, 0, 0]])
    assert last_tokens(mask).tolist() == [[0, 1, 0], [0, 0, 1], [0, 0, 0]]
    method = VERL(Config(stride=2, place="last token"))
    method.advantages(batch_of(0), torch.ones(4))
    made = method.advantages(batch_of(1), torch.ones(4))
    assert made.shape == (4, 9)
    assert torch.equal(made[:, :-1], torch.ones(4, 8))
    assert (made[:, -1] > 1).any()


@pytest.mark.training
def test_two_real_steps(two_steps):
    trained = two_steps("verl-effective-rank", {"stride": 4}, base="grpo", training__learning_rate=1e-3)
    first, second = trained.steps
    assert first["verl-effective-rank/er"] > 1
    assert "verl-effective-rank/bonus" not in first
    assert second["verl-effective-rank/bonus"] >= 0
    for rollout in trained.rollouts:
        base, after = rollout.contributions["base"], rollout.contributions["verl-effective-rank"]
        assert 0 <= after - base <= abs(base) / 2 + 1e-5
