"""Credit for turns."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from trainers.maths.advantages import z_score
from trainers.maths.credit import (
    average_nodes,
    centre_by_key,
    estimate_advantages,
    estimate_token_advantages,
    pad_turns,
    spread_turns,
    sum_returns,
    z_score_by_key,
)

numbers = st.floats(-3, 3, width=32)


def rows(*values):
    return torch.tensor(values, dtype=torch.float64)


def test_returns_of_turns_are_those_of_igpos_example():
    rewards = rows([0.277, -0.277, 1.0], [-1.387, 1.387, -1.0])
    assert torch.allclose(sum_returns(rewards, torch.ones(2, 3)), rows([1.0, 0.723, 1.0], [-1.0, 0.387, -1.0]), atol=1e-9)


def test_a_masked_turn_costs_no_discount():
    made = sum_returns(rows([1.0, 9.0, 2.0]), torch.tensor([[1, 0, 1]]), gamma=0.5)
    assert made.tolist() == [[2.0, 0.0, 2.0]]


def test_two_level_advantages_are_those_of_the_worked_example():
    turns = estimate_advantages(rows([0.0, 1.0]), rows([0.5, 0.6]), torch.ones(1, 2), gamma=1.0, lam=0.95)
    assert torch.allclose(turns, rows([0.48, 0.4]))
    tokens = estimate_token_advantages(turns, rows([0.6, 0.65, 0.7]), torch.tensor([[1, 1, 1]]), gamma=1.0, lam=0.95)
    assert torch.allclose(tokens, rows([0.4585, 0.43, 0.4]))


def test_the_worlds_tokens_between_two_turns_change_no_token_advantage():
    values, turns = rows([0.5, 0.4, 0.6, 0.7]), torch.tensor([[0, 0, 1, 1]])
    plain = estimate_token_advantages(rows([0.3, -0.2]), values, turns, 0.9, 0.8)
    wide = torch.tensor([[0, 0, -1, 1, 1]])
    made = estimate_token_advantages(rows([0.3, -0.2]), rows([0.5, 0.4, 9.0, 0.6, 0.7]), wide, 0.9, 0.8)
    assert made[0, 2] == 0
    assert torch.allclose(made[wide >= 0], plain[0])


@given(st.lists(numbers, min_size=1, max_size=6), st.floats(0, 1))
def test_with_lambda_one_advantages_are_returns_less_values(rewards, gamma):
    rewards, mask = rows(rewards), torch.ones(1, len(rewards))
    values = torch.linspace(-1, 1, len(rewards[0]), dtype=torch.float64)[None]
    made = estimate_advantages(rewards, values, mask, gamma, 1.0)
    assert torch.allclose(made, sum_returns(rewards, mask, gamma) - values, atol=1e-9)


@given(st.lists(numbers, min_size=2, max_size=6), st.floats(0, 1), st.floats(0, 1))
def test_masked_turns_might_as_well_not_be_there(rewards, gamma, lam):
    kept = [place for place in range(len(rewards)) if place % 2 == 0]
    values = torch.linspace(0, 1, len(rewards), dtype=torch.float64)[None]
    mask = torch.tensor([[int(place in kept) for place in range(len(rewards))]])
    whole = estimate_advantages(rows(rewards), values, mask, gamma, lam)
    alone = estimate_advantages(rows(rewards)[:, kept], values[:, kept], torch.ones(1, len(kept)), gamma, lam)
    assert torch.allclose(whole[:, kept], alone, atol=1e-9)
    assert whole[mask == 0].abs().sum() == 0


def test_turns_are_spread_over_their_tokens():
    made = spread_turns(rows([0.3, -0.2]), torch.tensor([[0, 0, -1, 1]]))
    assert made.tolist() == [[0.3, 0.3, 0.0, -0.2]]


def test_a_shared_prefix_gets_the_mean_of_its_leaves():
    """ARPO's hard credit: leaves with advantages 1 and -1 share node 7, whose tokens get 0."""
    nodes = torch.tensor([[7, 7, 3, 3], [7, 7, 4, -1]])
    assert average_nodes(rows(1.0, -1.0), nodes).tolist() == [[0, 0, 1, 1], [0, 0, -1, 0]]


@given(st.lists(numbers, min_size=1, max_size=5))
def test_rows_that_share_nothing_keep_their_own(advantages):
    nodes = torch.arange(len(advantages) * 2).view(-1, 2)
    made = average_nodes(rows(*advantages), nodes)
    assert torch.allclose(made, rows(*advantages)[:, None].expand(-1, 2))


@given(st.lists(st.tuples(numbers, st.integers(0, 2)), min_size=1, max_size=12))
def test_scores_by_key_are_centred_and_finite(pairs):
    values, keys = torch.tensor([value for value, _ in pairs]), [key for _, key in pairs]
    made = z_score_by_key(values, keys)
    assert torch.isfinite(made).all()
    for key in set(keys):
        own = made[torch.tensor([one == key for one in keys])]
        assert own.sum().item() == pytest.approx(0.0, abs=1e-3)
        if len(own) == 1:
            assert own.item() == 0


@given(st.lists(numbers, min_size=4, max_size=4))
def test_keys_of_adjacent_groups_give_grpos_scores(values):
    values = torch.tensor(values)
    assert torch.allclose(z_score_by_key(values, [0, 0, 1, 1]), z_score(values, 2), atol=1e-6)


def test_equal_values_get_exact_zeros():
    values = torch.tensor([0.7] * 3 + [0.1])
    assert centre_by_key(values, ["a"] * 3 + ["b"]).tolist() == [0, 0, 0, 0]
    assert z_score_by_key(values, ["a"] * 3 + ["b"]).tolist() == [0, 0, 0, 0]


def test_turns_of_different_lengths_are_padded():
    assert pad_turns([[0.5, 1.0], []], 3).tolist() == [[0.5, 1.0, 0.0], [0.0, 0.0, 0.0]]
    assert pad_turns([[], [1.0]], 0).tolist() == [[0.0], [1.0]]
