"""MNPO: the card's numbers, IPO when the reference is the only opponent, and a second iteration against the first one's policy."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.trainers.methods import pair_files
from tests.trainers.methods.batches import pair_batch
from trainers.methods.pairs.mnpo import MNPO, Config, compute_opponent_margin, parsed_weights, squared_distance

HALVES = torch.tensor([0.5, 0.5])


def column(*values):
    return torch.tensor([[value] for value in values])


def test_the_worked_examples():
    h = 0.8 - compute_opponent_margin(torch.tensor([0.2]), column(0.4, 0.1), HALVES, 1 / 3)
    assert h.item() == pytest.approx(0.5667, abs=1e-4)
    own, against = torch.tensor([4.0]), compute_opponent_margin(torch.tensor([2.0]), column(3.0, 1.0), HALVES, 1 / 3)
    assert (own - against).item() == pytest.approx(2.0, abs=1e-5)
    assert squared_distance(own, against, 0.25).item() == pytest.approx(0, abs=1e-9)
    assert squared_distance(own, against, 0.0075).item() == pytest.approx(4181.78, abs=0.01)


@pytest.mark.parametrize("config", [Config(rho=1.0, eta=0.2), Config(rho=0.3, eta=0.2)], ids=["rho 1", "no history"])
def test_against_the_reference_alone_it_is_ipo(config):
    batch = pair_batch(torch.tensor([[0.3, 0.5], [0.1, 0.0]]), torch.tensor([[-0.2, -0.4], [0.2, 0.6]]))
    method = MNPO(config)
    ipo = (batch.chosen_logprobs.mean(1) - batch.rejected_logprobs.mean(1) - 1 / (2 * 0.2)) ** 2
    if config.rho == 1.0:
        method.past, method.shares, method.known = [None], [1.0], {0: [5.0], 1: [-3.0]}
    assert torch.allclose(method.pair_loss(batch, torch.zeros(2), None), ipo)


@given(st.lists(st.floats(-5, 5), min_size=1, max_size=4), st.floats(0, 1), st.floats(-5, 5))
def test_an_opponent_that_equals_the_reference_changes_nothing(reference, rho, shift):
    """And a shift of every margin of the population shifts its mean by as much: its weights sum to 1."""
    reference = torch.tensor(reference, dtype=torch.double)
    past, shares = torch.stack([reference, reference]), HALVES.double()
    assert torch.allclose(compute_opponent_margin(reference, past, shares, rho), reference)
    assert torch.allclose(compute_opponent_margin(reference + shift, past + shift, shares, rho), reference + shift)


def test_weights_of_the_past_sum_to_one():
    assert parsed_weights("", 2) == [0.5, 0.5]
    assert parsed_weights("1, 3", 2) == [0.25, 0.75]
    assert parsed_weights("", 0) == []
    for wrong in ("1", "1,-1", "0,0"):
        with pytest.raises(ValueError, match="one for each past policy"):
            parsed_weights(wrong, 2)


def test_the_gradient_points_at_the_target_and_ignores_padding():
    chosen = torch.tensor([[0.1, 0.2, 9.0]], dtype=torch.double, requires_grad=True)
    batch = pair_batch(chosen, torch.zeros(1, 3, dtype=torch.double), chosen_mask=torch.tensor([[1.0, 1.0, 0.0]]).double())
    MNPO(Config(eta=0.5)).pair_loss(batch, torch.zeros(1), None).sum().backward()
    assert chosen.grad[0].tolist() == pytest.approx([(0.15 - 1.0), (0.15 - 1.0), 0.0])  # 2 (h - 1) / 2 tokens


def test_a_fully_masked_pair_is_finite():
    nothing = torch.zeros(2, 3)
    batch = pair_batch(torch.randn(2, 3), torch.randn(2, 1), chosen_mask=nothing, rejected_mask=torch.zeros(2, 1))
    assert torch.isfinite(MNPO(Config()).pair_loss(batch, torch.zeros(2), None)).all()


@pytest.mark.training
def test_a_second_iteration_measures_from_the_first_ones_policy(tmp_path, two_steps):
    dataset = pair_files.write(tmp_path, pair_files.rows(8))
    past = pair_files.earlier_run(tmp_path, dataset)
    trained = two_steps("mnpo", {"history": past, "rho": 0.25}, trainer="dpo", dataset=dataset, training__learning_rate=1e-3, training__max_steps=4)
    first = trained.steps[0]
    assert first["mnpo/implicit_reward"] == pytest.approx(0, abs=1e-4)  # the policy is the reference, and not the past policy
    assert first["mnpo/h"] == pytest.approx(3 * first["mnpo/from_reference"] - first["mnpo/from_past"], abs=1e-4)
    assert first["mnpo/from_past"] != pytest.approx(3 * first["mnpo/from_reference"], abs=1e-3)
    assert trained.steps[-1]["mnpo/h"] > first["mnpo/h"]
