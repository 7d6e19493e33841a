"""SIREN: the card's numbers, no term at the anchor, and finite gradients where there is no nucleus or no peak."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.trainers.methods.batches import loss_batch, rollout_batch
from trainers.methods.tokens import siren
from trainers.methods.tokens.siren import SIREN, Config, nucleus_entropy, peak_entropy, peak_mask


def logits_of(probabilities):
    return torch.tensor(probabilities).log()


def test_the_worked_examples():
    assert nucleus_entropy(logits_of([0.5, 0.2, 0.15, 0.1, 0.05]), 0.8).item() == pytest.approx(0.5983, abs=1e-4)
    entropies = torch.tensor([[0.1, 0.5, 0.9, 0.3, 0.2]])
    peaks = peak_mask(entropies, torch.ones(1, 5), 0.8)
    assert peaks.tolist() == [[0, 0, 1, 0, 0]]
    assert peak_entropy(entropies, peaks).item() == pytest.approx(0.9)


def test_the_penalty_and_its_slope():
    mean = torch.tensor(0.9, requires_grad=True)
    penalty = 0.005 * (mean - 0.6) ** 2
    penalty.backward()
    assert (penalty.item(), mean.grad.item()) == (pytest.approx(0.00045), pytest.approx(0.003))


def test_a_sure_distribution_has_no_nucleus_and_no_nan_gradient():
    logits = logits_of([[0.97, 0.01, 0.01, 0.01]]).requires_grad_()
    entropy = nucleus_entropy(logits, 0.8)
    entropy.sum().backward()
    assert entropy.item() == 0.0
    assert logits.grad.abs().sum() == 0.0


def test_rows_without_a_peak_are_left_out():
    entropies = torch.tensor([[0.5, 0.5], [0.1, 0.7], [0.9, 0.0], [0.4, 0.4]])
    mask = torch.tensor([[1.0, 1], [1, 1], [1, 0], [0, 0]])
    assert peak_entropy(entropies, peak_mask(entropies, mask, 0.8)).item() == pytest.approx(0.7)
    assert peak_entropy(entropies[3:], peak_mask(entropies[3:], mask[3:], 0.8)).item() == 0.0


@given(st.lists(st.floats(-5, 5), min_size=6, max_size=6), st.floats(0.05, 1.0))
def test_the_nucleus_entropy_is_between_0_and_that_of_a_uniform_one(values, top_p):
    entropy = nucleus_entropy(torch.tensor(values), top_p).item()
    assert -1e-6 <= entropy <= torch.log(torch.tensor(6.0)).item() + 1e-5


def term(method, logits):
    return method.loss(loss_batch(torch.zeros(2, 3), torch.zeros(2), logits=logits))


def test_the_first_step_is_the_anchor_and_a_restored_run_keeps_it():
    torch.manual_seed(0)
    method = SIREN(Config(weight=1.0))
    first = torch.randn(2, 3, 7)
    assert term(method, first).item() == 0.0
    later = term(method, first * 0.5).item()
    assert later > 0
    resumed = SIREN(Config(weight=1.0))
    resumed.restore(method.state())
    assert term(resumed, first * 0.5).item() == later


def test_micro_batches_share_the_whole_batchs_anchor(monkeypatch):
    """Also over several passes, and when the next batch begins with other rows."""
    torch.manual_seed(0)
    logits, rollout = torch.randn(4, 3, 7), rollout_batch([0.0] * 4, 2)
    monkeypatch.setattr(siren, "sampled_logprobs", lambda run, batch, size: iter(logits.log_softmax(-1).split(size)))

    def terms(method, values, count, **fields):
        parts = zip(torch.arange(4).split(4 // count), values.split(4 // count), strict=True)
        batches = [loss_batch(torch.zeros(len(rows), 3), torch.zeros(len(rows)), rollout=rollout, rows=rows, logits=x, **fields) for rows, x in parts]
        return sum(method.loss(batch) for batch in batches) / count

    whole, cut = SIREN(Config(weight=1.0)), SIREN(Config(weight=1.0))
    cut.run = None
    assert terms(whole, logits, 1).item() == pytest.approx(terms(cut, logits, 2).item(), abs=1e-12) == 0.0
    assert cut.anchor == pytest.approx(whole.anchor, rel=1e-6)
    logits = logits * 0.5  # the next pass, after an update
    later = [values.clone().requires_grad_() for values in (logits, logits)]
    losses = [terms(whole, later[0], 1, step=2), terms(cut, later[1], 2, step=2)]
    torch.stack(losses).sum().backward()
    assert losses[0].item() == pytest.approx(losses[1].item(), rel=1e-5)
    assert losses[0].item() > 0
    assert torch.allclose(later[0].grad, later[1].grad, atol=1e-7)
    assert cut.anchor == pytest.approx(whole.anchor, rel=1e-6)


def test_without_weight_it_adds_nothing():
    torch.manual_seed(0)
    method = SIREN(Config(weight=0.0))
    term(method, torch.randn(2, 3, 7))
    assert term(method, torch.randn(2, 3, 7)).item() == 0.0


def test_its_gradient_is_that_of_finite_differences():
    torch.manual_seed(0)
    method = SIREN(Config(weight=1.0))
    method.anchor = 0.3
    logits = torch.randn(2, 3, 7, dtype=torch.double, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: term(method, x), logits, eps=1e-7, atol=1e-5)


@pytest.mark.training
def test_two_real_steps(two_steps):
    trained = two_steps("siren", {"weight": 1.0}, base="dr-grpo")
    first, second = trained.steps
    assert first["siren/loss"] == pytest.approx(0.0, abs=1e-9)
    assert first["siren/peak_entropy"] == pytest.approx(first["siren/anchor"], rel=1e-6)
    assert second["siren/anchor"] == first["siren/anchor"]
    assert second["siren/loss"] == pytest.approx((second["siren/peak_entropy"] - second["siren/anchor"]) ** 2, rel=1e-3, abs=1e-9)
