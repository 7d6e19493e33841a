"""EGSPO: the card's numbers, the parent without gate and imitation, weights between 0 and 1 that keep the sign."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.trainers.methods.batches import loss_batch
from trainers.methods.tokens.egspo import EGSPO, Config, compute_attenuation, compute_entropy_threshold, gated_weights, imitation_share

ALONE = {"first": 0.0, "last": 0.0}


def test_the_worked_example():
    distributions = torch.tensor([[0.97, 0.01, 0.01, 0.01], [0.4, 0.3, 0.2, 0.1]])
    entropies = torch.special.entr(distributions).sum(1)[None]
    assert entropies[0].tolist() == pytest.approx([0.1677, 1.2799], abs=1e-4)
    weights = gated_weights(entropies, torch.tensor(0.5), compute_attenuation(distributions[:, 0].log()[None]))
    assert weights[0].tolist() == pytest.approx([0.0291, 1.0], abs=1e-4)
    losses = -weights * torch.tensor(-1.0)  # A = -1 at a ratio of 1: both are pushed down
    assert losses[0].tolist() == pytest.approx([0.0291, 1.0], abs=1e-4)


def test_without_gate_and_imitation_it_is_its_parent():
    batch = loss_batch(torch.full((2, 3), -0.1), torch.ones(2), entropies=torch.rand(2, 3))
    method = EGSPO(Config(quantile=0.0, **ALONE))
    assert torch.equal(method.token_weights(batch), torch.ones(2, 3))
    assert method.loss(batch) is None


def test_a_constant_share_and_a_fixed_gate():
    entropies = torch.tensor([[0.1, 0.9, 0.5]])
    batch = loss_batch(torch.full((1, 3), -0.1), torch.ones(1), entropies=entropies)
    method = EGSPO(Config(gate="fixed", nats=0.5, attenuation="constant", share=0.25, **ALONE))
    assert method.token_weights(batch).tolist() == [[0.25, 1.0, 1.0]]


@given(st.lists(st.floats(-20, 0), min_size=6, max_size=6), st.lists(st.floats(0, 5), min_size=6, max_size=6), st.floats(0, 1))
def test_weights_are_shares(logprobs, entropies, quantile):
    entropies = torch.tensor(entropies).view(2, 3)
    weights = gated_weights(
        entropies, compute_entropy_threshold(entropies, torch.ones(2, 3), quantile), compute_attenuation(torch.tensor(logprobs).view(2, 3))
    )
    assert ((weights >= 0) & (weights <= 1)).all()
    assert weights.flatten()[entropies.argmax()] == 1.0  # the least sure token always keeps its gradient


@given(st.permutations(range(4)))
def test_the_threshold_ignores_order_and_masked_tokens(order):
    entropies, mask = torch.tensor([[0.1, 0.4, 0.9, 50.0]]), torch.tensor([[1.0, 1, 1, 0]])
    order = list(order)
    assert compute_entropy_threshold(entropies[:, order], mask[:, order], 0.5) == pytest.approx(0.4)


def test_a_batch_without_any_token_stays_finite():
    method = EGSPO(Config(**ALONE))
    weights = method.token_weights(loss_batch(torch.zeros(2, 1), torch.zeros(2), mask=torch.zeros(2, 1)))
    assert torch.isfinite(weights).all()
    assert all(value == value for value in method.collect().values())


def test_imitation_fades():
    shares = [imitation_share(step, 100, 0.9, 0.05, 0.5) for step in (1, 26, 51, 100)]
    assert shares == pytest.approx([0.9, 0.475, 0.05, 0.05])
    assert imitation_share(1, 1, 0.9, 0.05, 0.0) == 0.9


@pytest.mark.training
def test_two_real_steps(two_steps):
    trained = two_steps("egspo", base="grpo")
    first, second = trained.steps
    assert first["egspo/imitation_share"] == pytest.approx(0.9)
    assert second["egspo/imitation_share"] == pytest.approx(0.05)
    assert first["egspo/loss"] == pytest.approx(0.9 * first["egspo/imitation_loss"], rel=1e-3)
    assert 0 < first["egspo/gated_tokens"] <= 0.8 + 1e-6
    assert 0 < first["egspo/token_weight"] < 0.1 * (0.25 + 0.75 * 0.25)  # at most 1 - mu on a fifth of the tokens and 1/4 of that on the others
    assert sum(first[f"egspo/entropies/{place:02d}"] for place in range(20)) == pytest.approx(1)
