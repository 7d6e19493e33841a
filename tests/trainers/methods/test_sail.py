"""SAIL: the card's numbers, DPO with equal attention in all layers, and real attention of a real policy."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import logsigmoid

from tests.trainers.methods import pair_files
from tests.trainers.methods.batches import pair_batch
from trainers.adapters.dpo import method_loss
from trainers.methods.bases.dpo import DPO
from trainers.methods.pairs.sail import SAIL, Config, compute_attention_drift, focal_layers, layer_of, span_mass, token_weights
from trainers.methods.stack import Stack


def base(score):
    return -logsigmoid(score)


def loss_of(chosen_mass, rejected_mass, **config):
    method = SAIL(Config(**config))
    method.weights = {(0, "chosen"): token_weights(torch.tensor(chosen_mass)), (0, "rejected"): token_weights(torch.tensor(rejected_mass))}
    batch = pair_batch(torch.tensor([[0.2, 0.4]]), torch.tensor([[-0.1, -0.3]]), beta=0.5)
    return method_loss(Stack(DPO(), [method]), batch, base).item()


def test_the_worked_example():
    assert token_weights(torch.tensor([0.1, 0.3])).tolist() == pytest.approx([0.5, 1.5])
    assert loss_of([0.1, 0.3], [0.2, 0.2]) == pytest.approx(0.4555, abs=1e-4)


def test_equal_attention_gives_dpo():
    plain = base(torch.tensor(0.5 * 1.0)).item()
    assert loss_of([0.2, 0.2], [0.7, 0.7]) == pytest.approx(plain)
    assert loss_of([0.1, 0.3], [0.1, 0.9], weigh=False) == pytest.approx(plain)


@settings(deadline=None)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=8), st.floats(0.1, 10))
def test_weights_have_mean_one_and_no_scale(mass, scale):
    mass = torch.tensor(mass, dtype=torch.double)
    weights = token_weights(mass)
    assert weights.mean().item() == pytest.approx(1)
    assert torch.isfinite(weights).all()
    if mass.sum() > 1e-3:
        assert torch.allclose(token_weights(mass * scale), weights)


def test_attention_is_read_where_the_token_is_predicted():
    """Four positions, two of them the span; tokens 2 and 3 are predicted at positions 1 and 2."""
    attentions = torch.tensor([[[[1, 0, 0, 0], [0.5, 0.5, 0, 0], [0.1, 0.2, 0.7, 0], [0.4, 0.3, 0.2, 0.1]]]])
    assert span_mass(attentions, torch.tensor([1.0, 1, 0, 0]), 2, 4)[0, 0].tolist() == pytest.approx([1.0, 0.3])


def test_the_layers_with_the_largest_drift_are_focal():
    found = compute_attention_drift(torch.tensor([[0.5, 0.5], [0.9, 0.1], [0.2, 0.2]]), torch.tensor([[0.5, 0.4], [0.1, 0.6], [0.2, 0.2]]))
    assert found.tolist() == pytest.approx([0.05, 0.65, 0.0])
    assert focal_layers(3, 0, found) == [1]
    assert focal_layers(3, 2, found) == [0, 1]
    assert focal_layers(12, 0, None) == [4, 5, 6, 7]
    assert focal_layers(2, 9, None) == [0, 1]


def test_a_parameter_knows_its_layer():
    assert layer_of("base_model.model.model.layers.11.self_attn.q_proj.lora_A.default.weight") == 11
    assert layer_of("model.embed_tokens.weight") is None


def test_masked_tokens_and_empty_answers_are_left_alone():
    method = SAIL(Config())
    method.weights = {(0, "chosen"): torch.tensor([2.0]), (0, "rejected"): torch.empty(0)}
    batch = pair_batch(torch.tensor([[1.0, 1.0]]), torch.zeros(1, 1), chosen_mask=torch.tensor([[0.0, 1.0]]), rejected_mask=torch.zeros(1, 1))
    chosen, rejected = method.pair_ratios(batch, batch.chosen_logprobs, batch.rejected_logprobs)
    assert chosen.tolist() == [[1.0, 2.0]]
    assert torch.isfinite(rejected).all()


@pytest.mark.training
def test_real_steps_train_the_layer_that_drifts(tmp_path, two_steps, monkeypatch):
    kept = []
    monkeypatch.setattr(SAIL, "prepare", lambda self, run, before=SAIL.prepare: (before(self, run), kept.append(self))[0])
    dataset = pair_files.write(tmp_path, pair_files.rows(8, plain=lambda place: "How many?"))
    trained = two_steps("sail", {"layers": 1}, trainer="dpo", dataset=dataset, training__max_steps=3, training__learning_rate=1e-3)
    method, first = kept[-1], trained.steps[0]
    (focal,) = method.focal
    assert first[f"sail/drift/{focal:02d}"] >= first[f"sail/drift/{1 - focal:02d}"]
    assert 0 < first["sail/attention/00"] < 1
    assert first["sail/heaviest"] > 1
    assert first["sail/adherence_chosen"] > first["sail/adherence_rejected"]
    before = dict(method.run.reference.named_parameters())
    for name, parameter in method.run.model.named_parameters():
        assert torch.equal(parameter, before[name]) == (layer_of(name) != focal), name
