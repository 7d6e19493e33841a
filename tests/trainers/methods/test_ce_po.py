"""CE-PO: the card's numbers, accuracy alone at full weight, gradients of a real model on the right parts only."""

import random
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import LlamaConfig, LlamaForCausalLM

from tests.trainers.methods.batches import rollout_batch
from trainers.methods.group.ce_po import CEPO, Config, hardened, influences, power_mean, share_left, working_span

UNITS = st.floats(0, 1, width=32)
TEXT = "<think>abc</think><answer>d</answer>"


def fused(accuracy, coherence, weight, power):
    return power_mean(torch.tensor([accuracy]), torch.tensor([coherence]), weight, power).item()


def test_the_worked_examples():
    gradient, twin = torch.tensor([[3.0, 4.0]]), torch.tensor([[1.0, 0.0]])
    assert hardened(gradient, twin)[0].tolist() == pytest.approx([0.0, 4.0])
    assert share_left(gradient, twin).item() == pytest.approx(0.8)
    assert [fused(1.0, 0.25, 0.5, power) for power in (1.0, 2.0, -1.0)] == pytest.approx([0.625, 0.7289, 0.4], abs=1e-4)


@given(UNITS, UNITS, UNITS, st.floats(-64, 64))
@settings(deadline=None, max_examples=60)
def test_a_mean_lies_between_its_parts_and_is_finite(accuracy, coherence, weight, power):
    made = fused(accuracy, coherence, weight, power)
    floor = 0.0 if power == 1.0 else 1e-3
    low, high = sorted((max(accuracy, floor), max(coherence, floor)))
    assert low - 1e-4 <= made <= high + 1e-4


def test_extreme_exponents_are_the_smaller_and_the_larger():
    assert fused(0.9, 0.3, 0.5, -64.0) == pytest.approx(0.3, abs=0.01)
    assert fused(0.9, 0.3, 0.5, 64.0) == pytest.approx(0.9, abs=0.01)
    assert fused(0.9, 0.4, 0.5, 0.0) == pytest.approx(0.6, abs=1e-4)
    assert fused(0.0, 0.5, 0.5, -1.0) == pytest.approx(0.002, abs=1e-4)  # a wrong answer is not divided by


@given(
    st.lists(st.floats(-3, 3, width=32), min_size=6, max_size=6), st.lists(st.floats(-3, 3, width=32), min_size=6, max_size=6), st.floats(0.01, 50)
)
@settings(deadline=None, max_examples=60)
def test_what_is_left_is_a_share_that_does_not_depend_on_scale(gradient, twin, scale):
    one, other = torch.tensor([gradient]).double(), torch.tensor([twin]).double()
    made = share_left(one, other)
    assert 0 <= made <= 1
    assert torch.allclose(share_left(one * scale, other), made, atol=1e-4)
    assert torch.allclose(share_left(one, other * scale), made, atol=1e-4)


def test_the_same_gradient_is_all_nuisance_and_no_gradient_is_nothing():
    gradient = torch.tensor([[3.0, 4.0]])
    assert share_left(gradient, gradient).item() == pytest.approx(0.0, abs=1e-3)
    assert share_left(torch.zeros(1, 2), gradient).item() == 0.0
    assert share_left(gradient, torch.zeros(1, 2)).item() == pytest.approx(1.0)


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    shape = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16, "vocab_size": 130}
    return LlamaForCausalLM(LlamaConfig(**shape, pad_token_id=0)).eval()


def test_gradients_reach_the_right_parts_and_leave_the_policy_alone(model):
    ids = torch.tensor([[5, 6, 7, 8, 9, 10], [5, 6, 7, 8, 9, 11]])
    prompt, working, answer = (torch.tensor([row] * 2, dtype=torch.float32) for row in ([1, 1, 0, 0, 0, 0], [0, 0, 1, 1, 0, 0], [0, 0, 0, 0, 0, 1]))
    to_prompt, to_working = influences(model, ids, torch.ones_like(ids), prompt, working, answer)
    assert to_prompt.view(2, 6, -1)[:, 2:].abs().max() == 0.0
    assert to_prompt.view(2, 6, -1)[:, :2].abs().max() > 0
    assert to_working.view(2, 6, -1)[:, [0, 1, 4, 5]].abs().max() == 0.0
    assert torch.allclose(to_prompt[0], to_prompt[1], atol=1e-6)  # the working is the same, and the answer comes later
    assert not torch.allclose(to_working[0], to_working[1])
    assert all(parameter.grad is None for parameter in model.parameters())


def method_on(model, **config):
    method = CEPO(Config(**config))
    method.run = SimpleNamespace(model=model, rng=lambda *key: random.Random(str(key)), tokenizer=SimpleNamespace(pad_token_id=0))
    return method


def batch_of(texts, rewards, group):
    width = max(1, *(len(text) for text in texts))
    ids = torch.tensor([[ord(letter) % 120 + 1 for letter in text] + [0] * (width - len(text)) for text in texts])
    mask = torch.tensor([[1.0] * len(text) + [0.0] * (width - len(text)) for text in texts])
    ends = [[min(len(text), place + 1) for place in range(width)] for text in texts]
    return rollout_batch(rewards, group, texts=texts, ids=ids, mask=mask, ends=ends, prompt_ids=[[3, 4, 5 + row] for row in range(len(texts))])


def test_answers_without_working_or_answer_are_not_coherent(model):
    texts = [TEXT, "<think></think><answer>d</answer>", "<think>abc", "a", ""]
    batch = batch_of(texts, [1.0] * 5, 5)
    coherence = method_on(model).coherence(batch, list(range(5)))
    assert coherence[0] > 0
    assert coherence[1:].tolist() == [0.0] * 4
    assert torch.isfinite(coherence).all()


def test_the_working_is_what_stands_before_the_answer_where_nothing_is_thought():
    assert working_span(TEXT) == (7, 10)
    assert working_span("<search>a</search>x<answer>d</answer>") == (0, 19)
    assert working_span("<answer>d</answer>") == (0, 0)
    assert working_span("d") is None


def test_padding_changes_nothing(model):
    alone = method_on(model).coherence(batch_of([TEXT], [1.0], 1), [0])
    beside = method_on(model).coherence(batch_of([TEXT, TEXT + " and a long rest"], [1.0, 1.0], 2), [0])
    assert beside.item() == pytest.approx(alone.item(), abs=1e-4)


def test_accuracy_alone_is_its_parent(model):
    rewards = [1.0, 0.0, 1.0, 0.0]
    batch = batch_of([TEXT] * 4, rewards, 2)
    method = method_on(model, weight=1.0, share=1.0)
    assert method.rewards(batch, batch.reward).tolist() == rewards
    assert 0 <= method.collect()["coherence"] <= 1


def test_groups_that_are_not_measured_keep_their_reward(model):
    batch = batch_of([TEXT] * 8, [1.0] * 8, 2)
    method = method_on(model, share=0.5)
    made = method.rewards(batch, batch.reward)
    untouched = batch.grouped(made == 1.0).all(1)
    assert untouched.sum() == 2
    assert torch.equal(made, method.rewards(batch, batch.reward))  # the same draw again


@pytest.mark.training
def test_two_real_steps(two_steps):
    trained = two_steps("ce-po", {"share": 1.0})
    for step in trained.steps:
        assert 0 < step["ce-po/coherence"] < 1
    for rollout in trained.rollouts:
        assert 0.5 * rollout.reward - 1e-6 <= rollout.shaped["ce-po"] <= 0.5 * rollout.reward + 0.5
