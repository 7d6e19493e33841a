"""OrthAlign: the card's numbers, untouched gradients when nothing is protected, and runs that keep out of an earlier run's directions."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.trainers.conftest import make_spec
from tests.trainers.methods import pair_files
from trainers.attempt import train
from trainers.methods.pairs.orthalign import join_bases, project_gradient, protected_basis, weight_of


def matrix(seed, rows, columns, rank):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(rows, rank, generator=generator) @ torch.randn(rank, columns, generator=generator)


def test_the_worked_example():
    basis = protected_basis(torch.tensor([[3.0, 0.0], [0.0, 0.0]]), 0.5)
    kept = project_gradient(torch.tensor([[1.0, 2.0], [3.0, 4.0]]), basis)
    assert torch.allclose(kept, torch.tensor([[0.0, 0.0], [3.0, 4.0]]))
    assert (torch.tensor([[1.0, 0.0]]) @ kept).abs().max() < 1e-6


sizes = st.integers(2, 12)


@settings(deadline=None)
@given(st.integers(0, 99), sizes, sizes, st.integers(1, 4), st.floats(0, 0.9))
def test_no_gradient_is_left_in_protected_directions_and_what_was_left_alone_is_free(seed, rows, columns, rank, ratio):
    update = matrix(seed, rows, columns, min(rank, rows, columns))
    basis = protected_basis(update, ratio)
    assert basis.shape[1] <= min(rank, rows, columns)  # never a direction without energy
    kept = project_gradient(torch.ones(rows, 3), basis)
    assert (basis.T @ kept).abs().max() < 1e-3 if basis.numel() else torch.equal(kept, torch.ones(rows, 3))
    outside = project_gradient(torch.randn(rows, 2, generator=torch.Generator().manual_seed(1)), basis)
    assert torch.allclose(project_gradient(outside, basis), outside, atol=1e-3)


def test_tall_matrices_keep_the_directions_that_the_economy_decomposition_leaves_out():
    """The kept columns alone would leave only d_in directions, and drop those outside of U."""
    update = matrix(0, 8, 3, 3)
    basis = protected_basis(update, 0.0)
    orthogonal = torch.linalg.qr(torch.cat([basis, torch.eye(8)], 1))[0][:, 3:]
    assert torch.allclose(project_gradient(orthogonal, basis), orthogonal, atol=1e-5)


def test_one_direction_at_least_stays_free():
    """The authors' count: len - max(1, int(ratio * len)); a matrix with a single singular value is skipped."""
    assert protected_basis(matrix(0, 5, 5, 5), 0.0).shape == (5, 4)
    assert protected_basis(matrix(0, 5, 5, 5), 0.1).shape == (5, 4)
    assert protected_basis(matrix(0, 5, 5, 5), 0.8).shape == (5, 1)
    assert protected_basis(matrix(0, 5, 1, 1), 0.0).shape == (5, 0)
    assert protected_basis(matrix(0, 1, 5, 1), 0.5).shape == (1, 0)


def test_a_null_ratio_of_one_is_the_base():
    gradient = torch.randn(4, 4)
    assert torch.equal(project_gradient(gradient, protected_basis(matrix(0, 4, 4, 4), 1.0)), gradient)


def test_objectives_are_joined():
    one, other = protected_basis(matrix(0, 6, 6, 1), 0.0), protected_basis(matrix(1, 6, 6, 2), 0.0)
    both = join_bases([one, other, one])
    assert both.shape == (6, 3)
    assert torch.allclose(both.T @ both, torch.eye(3), atol=1e-5)
    assert project_gradient(torch.cat([one, other], 1), both).abs().max() < 1e-5


def test_a_parameter_knows_the_weight_it_changes():
    assert weight_of("base_model.model.model.layers.0.self_attn.q_proj.lora_B.default.weight") == "model.layers.0.self_attn.q_proj.weight"
    assert weight_of("base_model.model.model.layers.0.self_attn.q_proj.lora_A.default.weight") is None
    assert weight_of("model.layers.0.mlp.up_proj.weight") == "model.layers.0.mlp.up_proj.weight"


@pytest.fixture
def earlier(tmp_path):
    dataset = pair_files.write(tmp_path, pair_files.rows(16))
    return pair_files.earlier_run(tmp_path, dataset), dataset


@pytest.mark.parametrize("lora", [None, {"r": 4}], ids=["all weights", "adapters"])
@pytest.mark.training
def test_an_exact_run_stays_out_of_the_earlier_ones_directions(two_steps, earlier, lora):
    folder, dataset = earlier
    options = {"trainer": "dpo", "dataset": dataset, "training__max_steps": 6, "training__learning_rate": 1e-3, "lora": lora}
    trained = two_steps("orthalign", {"earlier": folder, "exact": True}, **options)
    assert 0 < trained.steps[0]["orthalign/gradient_kept"] < 1
    assert trained.steps[0]["orthalign/spectrum/00"] == pytest.approx(1)
    # Of Adam's first update a third lies inside; later ones are measured after the earlier ones were projected.
    assert trained.steps[-1]["orthalign/leak"] < trained.steps[2]["orthalign/leak"] / 2


@pytest.mark.training
def test_grpo_after_dpo(two_steps, earlier):
    trained = two_steps("orthalign", {"earlier": earlier[0]})
    assert all(step["orthalign/gradient_kept"] < 1 for step in trained.steps)


@pytest.mark.training
def test_a_run_without_anything_to_protect_is_refused(tmp_path, earlier):
    """No folder; a folder that is no policy."""
    for config in ({}, {"earlier": str(tmp_path / "nothing")}):
        spec = make_spec(tmp_path / "refused", "dpo", methods=[{"name": "orthalign", "config": config}], dataset=earlier[1])
        assert train.run_training(spec, tmp_path / "refused") == train.REFUSED
