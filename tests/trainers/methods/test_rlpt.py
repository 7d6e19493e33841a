"""RLPT: the card's numbers, the whole softmax when every token is promising, no gradient outside the set."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.trainers.methods.batches import loss_batch, rollout_batch
from trainers.methods.tokens.rlpt import RLPT, Config, compute_support_coverage, on_support, select_promising_tokens

OLD, NEW = [2.0, 1.0, 0.0, -3.0], [2.2, 1.0, 0.0, -3.0]
FIRST = torch.zeros(1, 1, dtype=torch.long)


def row(logits):
    return torch.tensor(logits, dtype=torch.double)[None, None]  # (1, 1, V)


def test_the_worked_example():
    support = select_promising_tokens(row(OLD), FIRST, 2)
    assert support.tolist() == [[[0, 1]]]
    old, new = on_support(row(OLD), FIRST, support), on_support(row(NEW), FIRST, support)
    assert [old.exp().item(), new.exp().item()] == pytest.approx([0.7311, 0.7685], abs=1e-4)
    assert (new - old).exp().item() == pytest.approx(1.0512, abs=1e-4)
    full = torch.log_softmax(row(NEW), -1)[..., 0] - torch.log_softmax(row(OLD), -1)[..., 0]
    assert full.exp().item() == pytest.approx(1.0652, abs=1e-4)


def test_tokens_outside_the_set_get_no_gradient():
    logits = row(OLD).requires_grad_()
    on_support(logits, FIRST, select_promising_tokens(logits.detach(), FIRST, 2)).sum().backward()
    assert logits.grad[0, 0].tolist() == pytest.approx([0.2689, -0.2689, 0.0, 0.0], abs=1e-4)
    assert logits.grad[0, 0, 2:].tolist() == [0.0, 0.0]


@settings(deadline=None)
@given(st.lists(st.floats(-10, 10), min_size=5, max_size=5), st.integers(0, 4))
def test_with_the_whole_vocabulary_it_is_the_parents_softmax(logits, sampled):
    logits, ids = row(logits), torch.tensor([[sampled]])
    support = select_promising_tokens(logits, ids, 99)
    assert torch.allclose(on_support(logits, ids, support), torch.log_softmax(logits, -1)[..., sampled])
    assert compute_support_coverage(logits, support).item() == pytest.approx(1.0)


@settings(deadline=None)
@given(st.lists(st.sampled_from([0.0, 1.0, 2.0, -1e4]), min_size=5, max_size=5), st.integers(0, 4), st.integers(1, 5))
def test_the_sampled_token_is_in_the_set_with_a_finite_probability(logits, sampled, count):
    logits, ids = row(logits), torch.tensor([[sampled]])
    support = select_promising_tokens(logits, ids, count)
    assert (support == sampled).any()
    assert support.shape[-1] == count
    assert len(set(support.flatten().tolist())) == count
    assert -1e5 < on_support(logits, ids, support).item() <= 1e-9


def test_the_set_of_the_first_pass_is_kept_for_later_ones():
    torch.manual_seed(0)
    rollout = rollout_batch([0.0, 1.0, 0.0, 1.0], 2)
    rollout.ids = torch.zeros(4, 3, dtype=torch.long)
    method = RLPT(Config(tokens=2))
    method.observe(rollout)
    first, later = torch.randn(4, 3, 7), torch.randn(4, 3, 7)
    for rows in ([2, 0], [3, 1]):
        batch = loss_batch(torch.zeros(2, 3), torch.zeros(2), rollout=rollout, rows=torch.tensor(rows), logits=first[rows])
        assert method.log_ratios(batch).abs().max() == 0.0
    rows = torch.tensor([1, 2])
    ratios = method.log_ratios(loss_batch(torch.zeros(2, 3), torch.zeros(2), rollout=rollout, rows=rows, logits=later[rows], first_pass=False))
    support = select_promising_tokens(first[rows], rollout.ids[rows], 2)
    expected = on_support(later[rows], rollout.ids[rows], support) - on_support(first[rows], rollout.ids[rows], support)
    assert torch.allclose(ratios, expected)


def test_masked_rows_do_not_count_in_the_coverage():
    rollout = rollout_batch([0.0, 1.0], 2, mask=torch.zeros(2, 1))
    rollout.ids = torch.zeros(2, 1, dtype=torch.long)
    method = RLPT(Config(tokens=1))
    method.observe(rollout)
    method.log_ratios(loss_batch(torch.zeros(2, 1), torch.zeros(2), rollout=rollout, mask=rollout.mask, logits=torch.randn(2, 1, 7)))
    assert method.collect() == {"coverage": 0.0, "coverage_lowest": 1.0}


@pytest.mark.training
def test_two_real_steps(two_steps):
    trained = two_steps("rlpt", {"tokens": 2}, base="grpo", training__num_iterations=2, training__max_steps=4, training__learning_rate=1e-2)
    assert 0.5 < trained.steps[0]["rlpt/coverage"] <= 1.0
    assert trained.steps[0]["rlpt/coverage_lowest"] < 0.999
    assert all(step["grad_norm"] >= 0 for step in trained.steps)
    assert len({rollout.step for rollout in trained.rollouts}) == 2  # each batch is used twice
