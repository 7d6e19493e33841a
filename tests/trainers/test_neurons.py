"""Neurons of a reward model: effects by the card's numbers, tail scores, and what is read and set at the last token of a text."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from transformers import LlamaConfig, LlamaForSequenceClassification

from trainers.maths.circuits import choose_circuit, compute_neuron_effects, rank_percentiles, score_tail
from trainers.policies.neurons import NoNeurons, find_last_tokens, list_neuron_maps, read_activations, set_neurons

NEURONS = 2 * 24
IDS = torch.tensor([[5, 6, 7, 8], [9, 4, 0, 0], [3, 3, 2, 0]])
MASK = (IDS != 0).long()


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2, "vocab_size": 12, "initializer_range": 0.3}
    return LlamaForSequenceClassification(LlamaConfig(**sizes, num_labels=1, pad_token_id=0)).eval()


def test_the_worked_examples_of_the_card():
    tail, head = torch.tensor([[2.5, 0.5, 1.0], [1.5, 0.5, 1.0]]), torch.tensor([[0.5, 0.5, 0.9], [0.5, 0.5, 0.9]])
    effects = compute_neuron_effects(tail, head)
    spread = torch.cat([tail, head]).std(0, correction=0)
    assert effects[0].item() == pytest.approx(1.5 / spread[0].item())
    assert effects[1] == 0  # it says the same of all
    assert choose_circuit(effects * torch.tensor([1.0, 1.0, 0.1]), 1).tolist() == [0]


def test_a_neuron_counts_in_the_direction_of_its_effect():
    rare = torch.tensor([[3.0, -3.0], [3.0, -3.0]])
    common = torch.tensor([[0.0, 0.0], [0.5, 0.2], [-0.5, -0.2]])
    effects = compute_neuron_effects(rare, common)
    scores = score_tail(torch.cat([rare, common]), choose_circuit(effects, 2), effects)
    assert scores[:2].min() > scores[2:].max()


@given(st.lists(st.integers(-3, 3), min_size=1, max_size=9))
def test_percentiles_keep_the_order_and_their_mean(values):
    made = rank_percentiles(torch.tensor(values, dtype=torch.float64))
    assert ((made >= 0) & (made <= 1)).all()
    assert made.mean().item() == pytest.approx(0.5)
    ordered = made[torch.tensor(values).argsort(stable=True)]
    assert (ordered.diff() >= 0).all()


def test_activations_are_those_of_the_last_token_whatever_stands_beside(model):
    together, scores = read_activations(model, IDS, MASK)
    assert together.shape == (3, NEURONS)
    for row, count in enumerate(MASK.sum(1).tolist()):
        alone, score = read_activations(model, IDS[row : row + 1, :count], MASK[row : row + 1, :count])
        assert torch.allclose(together[row], alone[0], atol=1e-5)
        assert scores[row].item() == pytest.approx(score.item(), abs=1e-5)
    assert find_last_tokens(torch.tensor([[0, 1, 1], [1, 0, 0]])).tolist() == [2, 0]


def test_set_neurons_have_their_values_and_nothing_is_left_behind(model):
    before, scores = read_activations(model, IDS, MASK)
    places, values = torch.tensor([3, 40]), torch.tensor([2.0, -1.0])
    with set_neurons(model, places, values, MASK):
        inside, changed = read_activations(model, IDS, MASK)
    assert torch.allclose(inside[:, places], values.expand(3, 2))
    same = [place for place in range(24) if place != 3]  # the first layer's others see nothing of it
    assert torch.equal(inside[:, same], before[:, same])
    assert not torch.allclose(changed, scores)
    after, again = read_activations(model, IDS, MASK)
    assert torch.equal(after, before)
    assert torch.equal(again, scores)


def test_set_to_what_they_are_they_change_nothing_and_gradients_go_around_them(model):
    before, scores = read_activations(model, IDS[:1], MASK[:1])
    places = torch.arange(NEURONS)
    with set_neurons(model, places, before[0], MASK[:1]):
        made = model(input_ids=IDS[:1], attention_mask=MASK[:1]).logits
    assert made.item() == pytest.approx(scores.item(), abs=1e-5)
    made.sum().backward()
    gates = [layer.mlp.gate_proj.weight.grad for layer in model.model.layers]
    assert not gates[1].any()  # at the last token the neurons are constants, and no other token reaches the score past the second layer
    assert model.model.layers[1].mlp.down_proj.weight.grad.any()
    model.zero_grad()


def test_a_model_without_known_layers_is_refused():
    with pytest.raises(NoNeurons, match="Linear"):
        list_neuron_maps(nn.Linear(2, 2))
