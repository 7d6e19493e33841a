"""Coupled masks, leave-one-out and orders: the cards' numbers, and estimates against what they estimate."""

import itertools
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from trainers.masked.likelihood import (
    couple_logprobs,
    draw_coupled_mask,
    draw_order,
    draw_share,
    leave_one_out,
    order_logprob,
    weigh_single_mask,
)


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def test_the_worked_examples_of_diffucoder():
    full, first, second = torch.tensor([[-2.0, -2.0]]), torch.tensor([[-1.5, 9.0]]), torch.tensor([[9.0, -1.5]])
    made = couple_logprobs(full, first, second, torch.tensor([[True, False]]), 0.4)
    assert made.tolist()[0] == pytest.approx([-2.875, -2.25])
    assert leave_one_out(torch.tensor([1.0, 0, 0, 1]), 4).tolist() == pytest.approx([0.6667, -0.6667, -0.6667, 0.6667], abs=1e-4)


def test_the_worked_example_of_remedi():
    scores = torch.tensor([[math.log(4), math.log(2), 0.0, 0.0]])
    assert order_logprob(scores, torch.tensor([[0, 1]])).item() == pytest.approx(-1.3863, abs=1e-4)


@given(st.lists(st.floats(-4, 4), min_size=1, max_size=4))
def test_the_probabilities_of_all_orders_sum_to_one(scores):
    orders = torch.tensor(list(itertools.permutations(range(len(scores)))))
    rows = torch.tensor([scores], dtype=torch.float64).expand(len(orders), -1)
    assert order_logprob(rows, orders).exp().sum().item() == pytest.approx(1)


def test_rows_may_choose_different_numbers_of_positions():
    scores = torch.tensor([[1.0, 2.0, 3.0], [1.0, 2.0, -torch.inf]])
    made = order_logprob(scores, torch.tensor([[2, -1], [1, 0]]))
    assert made[0].item() == pytest.approx(order_logprob(scores[:1], torch.tensor([[2]])).item())
    assert made[1].item() == pytest.approx(2 - math.log(math.e + math.e**2))


def test_orders_are_drawn_as_often_as_their_probability_says():
    scores = torch.tensor([[0.0, 1.0, -torch.inf, 0.5]]).expand(20_000, 4)
    order = draw_order(scores, torch.full((20_000,), 2), generator())
    for pair in ((1, 3), (0, 1), (3, 0)):
        share = (order == torch.tensor(pair)).all(1).float().mean().item()
        assert share == pytest.approx(order_logprob(scores[:1], torch.tensor([pair])).exp().item(), abs=0.02)
    assert not (order == 2).any()


def test_without_noise_the_surest_come_first_and_rows_keep_their_counts():
    order = draw_order(torch.tensor([[0.1, 0.9, 0.5], [3.0, 2.0, 1.0]]), torch.tensor([2, 1]), None)
    assert order.tolist() == [[1, 2], [0, -1]]


@given(st.integers(0, 1000))
def test_every_token_is_scored_once_while_it_is_masked(seed):
    random = generator(seed)
    share = draw_share(random)
    assert 0.2 <= share <= 0.8
    mask = draw_coupled_mask(torch.zeros(3, 7), share, random)
    first = torch.ones(3, 7, requires_grad=True)
    second = torch.ones(3, 7, requires_grad=True)
    couple_logprobs(torch.zeros(3, 7), first, second, mask, share).sum().backward()
    assert torch.equal(first.grad > 0, mask)
    assert torch.equal(second.grad > 0, ~mask)


def test_the_coupled_estimate_varies_less_than_a_single_mask():
    random = generator(1)
    logprobs = -2 * torch.rand(1, 50, generator=random)
    coupled, single = [], []
    for _ in range(400):
        share = draw_share(random)
        mask = draw_coupled_mask(logprobs, share, random)
        coupled.append(couple_logprobs(logprobs, logprobs, logprobs, mask, share))
        single.append(weigh_single_mask(logprobs, mask, share))
    assert torch.cat(coupled).var(0).mean() < 0.5 * torch.cat(single).var(0).mean()


@given(st.lists(st.floats(-5, 5), min_size=2, max_size=8))
def test_leave_one_out_sums_to_zero_and_ignores_a_constant(rewards):
    values = torch.tensor(rewards, dtype=torch.float64)
    made = leave_one_out(values, len(rewards))
    assert made.sum().item() == pytest.approx(0, abs=1e-9)
    assert torch.allclose(leave_one_out(values + 7, len(rewards)), made, atol=1e-9)
    assert leave_one_out(values, 1).tolist() == [0.0] * len(rewards)
