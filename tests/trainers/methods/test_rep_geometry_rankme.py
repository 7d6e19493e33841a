"""RankMe and alpha-ReQ: the card's numbers, what a spectrum does not know, and a probe that leaves training as it is."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.trainers.conftest import events_in, make_spec
from tests.trainers.methods.conftest import Trained
from trainers.attempt import train
from trainers.maths.spectrum import covariance_eigenvalues, power_law_slope
from trainers.methods.analysis.rep_geometry_rankme import RepGeometry, alpha_req, compute_rankme


def test_the_worked_examples():
    eigenvalues = torch.tensor([4.0, 1.0])
    assert compute_rankme(eigenvalues) == pytest.approx(1.6494, abs=1e-4)
    assert compute_rankme(eigenvalues, "singular values") == pytest.approx(1.8899, abs=1e-4)
    power = torch.arange(1, 11, dtype=torch.double) ** -1.5
    assert power_law_slope(power, 1, 10) == pytest.approx(1.5, abs=1e-12)


def test_the_slope_is_taken_over_its_range_alone():
    bent = torch.cat([torch.full((10,), 5.0, dtype=torch.double), torch.arange(11, 81, dtype=torch.double) ** -2.0])
    assert alpha_req(bent) == pytest.approx(2.0)
    assert power_law_slope(bent, 1, 10) == pytest.approx(0.0)


def test_short_and_empty_spectra_are_finite():
    assert alpha_req(torch.tensor([2.0], dtype=torch.double)) == 0.0
    assert alpha_req(torch.zeros(20, dtype=torch.double)) == compute_rankme(torch.zeros(20)) == 0.0
    assert alpha_req(torch.arange(1, 5, dtype=torch.double) ** -1.0) == pytest.approx(1.0)  # too few for the range: all of them


@settings(deadline=None)
@given(st.integers(0, 999), st.floats(0.1, 50), st.floats(-5, 5), st.permutations(range(12)))
def test_neither_scale_nor_shift_nor_order_nor_rotation_count(seed, scale, shift, order):
    generator = torch.Generator().manual_seed(seed)
    states = torch.randn(12, 5, generator=generator, dtype=torch.double)
    turn, _ = torch.linalg.qr(torch.randn(5, 5, generator=generator, dtype=torch.double))
    eigenvalues, other = covariance_eigenvalues(states), covariance_eigenvalues((states[list(order)] @ turn) * scale + shift)
    assert compute_rankme(other) == pytest.approx(compute_rankme(eigenvalues), rel=1e-6)
    assert power_law_slope(other, 1, 5) == pytest.approx(power_law_slope(eigenvalues, 1, 5), rel=1e-6)
    assert 1 <= compute_rankme(eigenvalues) <= 5


def test_the_eigenvalues_are_those_of_the_covariance():
    states = torch.randn(9, 4, generator=torch.Generator().manual_seed(0), dtype=torch.double)
    expected = torch.linalg.eigvalsh(torch.cov(states.T, correction=0)).flip(0)
    assert torch.allclose(covariance_eigenvalues(states), expected)


def test_it_counts_its_steps_across_a_checkpoint():
    method, resumed = RepGeometry(), RepGeometry()
    method.steps = 7
    resumed.restore(method.state())
    assert resumed.steps == 7


@pytest.mark.training
def test_a_run_with_the_probe_is_the_run_without_it(two_steps, tmp_path_factory):
    probed = two_steps("rep-geometry-rankme", {"prompts": 32, "every": 1}, base="grpo")
    folder = tmp_path_factory.mktemp("plain")
    assert train.run_training(make_spec(folder, "grpo", base={"name": "grpo"}, training__max_steps=2), folder) == train.FINISHED
    plain = Trained(folder, events_in(folder))
    for one, other in zip(probed.steps, plain.steps, strict=True):
        assert (one["loss"], one["grad_norm"]) == pytest.approx((other["loss"], other["grad_norm"]), rel=1e-5, abs=1e-7)
        assert 1 < one["rep-geometry-rankme/rankme"] < 32
        assert one["rep-geometry-rankme/alpha"] > 0
        assert 0 < one["rep-geometry-rankme/distinct"] <= 1


@pytest.mark.training
@pytest.mark.parametrize("trainer", ["dpo", "sft"])
def test_two_real_steps_of_other_trainers(two_steps, trainer):
    trained = two_steps("rep-geometry-rankme", {"prompts": 16, "every": 2}, trainer=trainer)
    assert trained.steps[0]["rep-geometry-rankme/rankme"] > 1
    assert "rep-geometry-rankme/rankme" not in trained.steps[1]
