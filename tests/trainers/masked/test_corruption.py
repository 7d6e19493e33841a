"""Corruption: the card's counts, masks and wrong tokens that never meet, and losses that ask the right head the right thing."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from trainers.masked.corruption import Corrupted, confidence_loss, corrupt_tokens, count_corrupted, token_loss


def test_the_worked_example_of_remedi():
    assert count_corrupted(0.5, 0.1, 20) == (10, 1)


@given(st.floats(0.01, 1), st.floats(0, 0.5), st.integers(1, 60))
def test_fewer_tokens_are_wrong_than_masked_and_all_fit(share, rate, length):
    masked, wrong = count_corrupted(share, rate, length)
    assert 1 <= masked <= length
    assert 0 <= wrong < masked
    assert masked + wrong <= length


@given(st.integers(0, 500))
def test_only_writable_tokens_change_and_each_in_one_way(seed):
    random = torch.Generator().manual_seed(seed)
    ids = torch.randint(1, 9, (4, 12), generator=random)
    writable = torch.zeros(4, 12, dtype=torch.bool)
    writable[:, 3:] = True
    shares = torch.rand(4, generator=random).clamp(min=0.05)
    made = corrupt_tokens(ids, writable, shares, 0.3, 0, random)
    assert not (made.masked & made.wrong).any()
    assert not ((made.masked | made.wrong) & ~writable).any()
    assert torch.equal(made.ids == 0, made.masked)
    assert torch.equal((made.ids != ids), made.masked | made.wrong)
    assert made.masked.sum(1).tolist() == [count_corrupted(float(share), 0.3, 9)[0] for share in shares]


def case():
    ids = torch.tensor([[1, 2, 3]])
    return (
        ids,
        torch.ones(1, 3, dtype=torch.bool),
        Corrupted(torch.tensor([[0, 3, 3]]), torch.tensor([[True, False, False]]), torch.tensor([[False, True, False]])),
    )


def test_tokens_are_learnt_where_they_are_masked_or_wrong():
    ids, _, made = case()
    logits = torch.zeros(1, 3, 4, requires_grad=True)
    token_loss(logits, ids, made).backward()
    assert (logits.grad[0].abs().sum(-1) > 0).tolist() == [True, True, False]


def test_confidence_is_1_for_clean_0_for_wrong_and_how_likely_it_is_for_masked_tokens():
    ids, writable, made = case()
    logits = torch.zeros(1, 3, 4, requires_grad=True)  # the clean token has probability 1/4
    right = torch.logit(torch.tensor([[0.25, 1e-6, 1 - 1e-6]]))
    best = confidence_loss(right, logits, ids, writable, made)
    for wrong in (right.flip(1), torch.zeros(1, 3)):
        assert confidence_loss(wrong, logits, ids, writable, made) > best
    confidence = torch.zeros(1, 3, requires_grad=True)
    confidence_loss(confidence, logits, ids, writable, made).backward()
    assert confidence.grad[0].tolist() == pytest.approx([0.25 / 3, 0.5 / 3, -0.5 / 3])
    assert logits.grad is None  # the tokens' head is not to change for it
