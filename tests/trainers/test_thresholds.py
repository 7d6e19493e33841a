"""Shares and means against what a person set: k of n reaches k / n, exceeds nothing it equals, and k - 1 of n does not reach it."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.trainers.methods.batches import rollout_batch
from trainers.maths.thresholds import is_above, is_at_least
from trainers.methods.group.rlsp import RLSP
from trainers.methods.group.rlsp import Config as RLSPConfig
from trainers.methods.pairs.atlas_evodpo import may_promote_candidate
from trainers.methods.prompts.clpo import difficulty_of
from trainers.methods.prompts.rest_rl import has_varying_rewards
from trainers.methods.prompts.sage import next_level
from trainers.methods.tokens.annealed_rlvr import heating_set


def float32_share(right: int, count: int) -> float:
    return torch.tensor([1.0] * right + [0.0] * (count - right)).mean().item()


@given(st.integers(1, 64).flatmap(lambda count: st.tuples(st.integers(1, count), st.just(count))))
def test_a_share_is_what_was_counted(numbers):
    right, count = numbers
    share = float32_share(right, count)
    assert is_at_least(share, right / count)
    assert not is_above(share, right / count)
    assert not is_at_least(float32_share(right - 1, count), right / count)
    assert is_above(share, (right - 1) / count)
    assert is_at_least(torch.tensor([share, share - 0.5 / count]), right / count).tolist() == [True, False]


@pytest.mark.parametrize("count", [3, 5, 7, 10, 20])
def test_methods_put_a_share_where_its_bound_says(count):
    for right in range(1, count):
        bound, share = right / count, float32_share(right, count)
        assert difficulty_of(share, bound, 1.0) == "hard"
        assert difficulty_of(share, 0.0, bound) == "medium"
        assert next_level(1, share, bound, 1.0, 3) == 2
        assert next_level(1, share, 0.0, bound, 3) == 1
        assert heating_set([share], [right], bound) == []
        assert may_promote_candidate(share, share, bound, bound)


def test_rewards_that_deviate_exactly_as_much_as_asked_vary():
    rewards = torch.tensor([[0.0, 0.1], [0.0, 0.09]])
    assert has_varying_rewards(rewards, 0.05).tolist() == [True, False]
    assert has_varying_rewards(torch.tensor([[0.3, 0.5, 0.7]]), (2 / 75) ** 0.5).tolist() == [True]


@pytest.mark.parametrize("right", range(1, 10))
def test_exploration_is_paid_up_to_its_target(right):
    batch = rollout_batch([1.0] * right + [0.0] * (10 - right), 10, texts=["<think>1+1=2</think>"] * 10)
    for target, pays in ((right / 10, True), ((right - 1) / 10, False)):
        made = RLSP(RLSPConfig(target=target)).rewards(batch, batch.reward)
        assert torch.equal(made, batch.reward) is not pays
