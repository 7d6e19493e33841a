"""The critic by classification: what tokens are paid, advantages by hand, what both heads learn, and two real steps."""

from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from tests.trainers.methods.batches import rollout_batch
from trainers.maths.credit import z_score_unmasked
from trainers.maths.value_histogram import ValueBins
from trainers.methods.tokens.hl_gauss_values import Config, HLGaussValues, pay_last_tokens
from trainers.methods.value_head import ValueHead, ValueNet
from trainers.policies.value_head import ValueHead as SearchHead
from trainers.policies.value_head import fit_value_head

MASK = torch.tensor([[1.0, 1, 0, 1], [1, 0, 0, 0], [0, 0, 0, 0]])


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def test_the_reward_is_paid_at_the_last_token_of_the_policy():
    paid = pay_last_tokens(torch.tensor([1.0, -2.0, 5.0]), MASK)
    assert paid.tolist() == [[0, 0, 0, 1], [-2, 0, 0, 0], [0, 0, 0, 0]]


@given(st.lists(st.tuples(st.floats(-5, 5), st.booleans()), min_size=1, max_size=8))
def test_advantages_are_standardised_over_tokens_alone(tokens):
    values, mask = torch.tensor([[value for value, _ in tokens]]), torch.tensor([[float(there) for _, there in tokens]])
    made = z_score_unmasked(values, mask)
    assert torch.isfinite(made).all()
    assert not made[mask == 0].any()
    assert abs(float(made.sum())) < 1e-2


@pytest.mark.parametrize("loss", ["hl-gauss", "mse"])
def test_advantages_of_a_small_batch_by_hand(loss, make_session):
    """A new head says the same of every token: V = .5 of the range, or 0. Without decay the advantage of each token is R - V, standardised."""
    session = make_session()
    session.run.trained = session.model
    method = HLGaussValues(Config(loss=loss, lam=1.0, value_passes=2))
    method.prepare(session.run)
    mask = torch.tensor([[1.0, 1, 1], [1, 1, 0], [1, 0, 1], [1, 1, 0]])  # ragged, and a token of the world in the third
    batch = rollout_batch([1.0, 0.0, 1.0, 0.0], 2, mask=mask, prompt_ids=[[5, 6], [7], [5], [6, 7, 8]])
    made = method.advantages(batch, torch.zeros(4))
    expected = z_score_unmasked((batch.reward[:, None] - (0.5 if loss == "hl-gauss" else 0.0)) * batch.mask, batch.mask)
    assert torch.allclose(made, expected, atol=1e-4)
    logged = method.collect()
    share = float(batch.mask[batch.reward > 0].sum() / batch.mask.sum())
    assert logged["calibration_error"] == pytest.approx(abs(share - (0.5 if loss == "hl-gauss" else 0.0)), abs=1e-5)
    assert logged["clamped"] == 0
    again = HLGaussValues(Config(loss=loss))
    again.prepare(session.run)
    again.restore(method.state())
    states = torch.randn(5, session.model.config.hidden_size, generator=seeded())
    assert torch.equal(again.head.estimate(states), method.head.estimate(states))
    assert method.head.estimate(states).abs().max() > 0


def test_both_heads_learn_classes_and_read_back_the_mean(make_session):
    session = make_session()
    states = torch.randn(64, session.model.config.hidden_size, generator=seeded())
    targets = (states[:, 0] > 0).float()
    run = SimpleNamespace(model=session.model, seed=0, device=torch.device("cpu"))
    head = ValueHead(run, 1e-2, 100, ValueBins(0.0, 1.0))
    assert head.fit(states, targets) < 0.1 * targets.var()
    assert ((head.estimate(states) > 0.5) == targets.bool()).float().mean() > 0.9
    search = SearchHead(4, ValueBins(-1.0, 1.0))
    same = torch.ones(4, 4)
    assert search.estimate(same[:1]) == [pytest.approx(0, abs=1e-6)]
    fit_value_head(search, same, torch.tensor([1.0, 1.0, 1.0, -1.0]), 400, 0.05, seeded())
    assert search.estimate(same[:1])[0] == pytest.approx(0.5, abs=0.08)


def test_the_range_must_not_be_empty():
    with pytest.raises(ValidationError, match="range of values is empty"):
        Config(v_min=1.0, v_max=1.0)


def test_a_head_that_regresses_has_one_output_as_before():
    assert ValueNet(8, 0).layers[-1].out_features == 1
    assert ValueNet(8, 0, ValueBins(0.0, 1.0)).layers[-1].out_features == 51


@pytest.mark.training
def test_two_real_steps(two_steps, written_answers):
    trained = two_steps("hl-gauss-values", {"value_passes": 3})
    for step in trained.steps:
        assert 0 <= step["hl-gauss-values/calibration_error"] <= 1
        assert step["hl-gauss-values/clamped"] == 0
    assert sum(trained.steps[0][f"hl-gauss-values/values/{place:02d}"] for place in range(20)) == pytest.approx(1)
    assert any(rollout.advantage for rollout in trained.rollouts)
