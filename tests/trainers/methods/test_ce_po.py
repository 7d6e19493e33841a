"""CE-PO: the card's numbers, accuracy alone at full weight, gradients of a real model on the right parts only."""

import random
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import LlamaConfig, LlamaForCausalLM

from tests.trainers.methods.batches import rollout_batch
from trainers.methods.group.ce_po import (
    CEPO,
    Config,
    Parts,
    channel_score,
    compute_direct_jacobian,
    compute_jacobians,
    harden_jacobian,
    power_mean,
    shuffle_tokens,
    working_span,
)

UNITS = st.floats(0, 1, width=32)
TEXT = "<think>abc</think><answer>d</answer>"


def fused(accuracy, coherence, weight, power):
    return power_mean(torch.tensor([[accuracy], [coherence]]), torch.tensor([weight, 1 - weight]), power).item()


def score(jacobian, twin):
    return channel_score(torch.tensor([jacobian]), torch.tensor([twin])).item()


def test_the_worked_examples():
    """One position has one singular value: there the code's score is the card's."""
    jacobian, twin = [[3.0, 4.0]], [[1.0, 0.0]]
    assert harden_jacobian(torch.tensor([jacobian]), torch.tensor([twin]))[0].tolist() == [[0.0, 4.0]]
    assert score(jacobian, twin) == pytest.approx(0.005 + 0.995 * 0.8)
    assert [fused(1.0, 0.25, 0.5, power) for power in (1.0, 2.0, -1.0)] == pytest.approx([0.625, 0.7289, 0.4], abs=1e-4)


def test_energy_in_several_directions_counts_less():
    nowhere = [[0.0, 0.0], [0.0, 0.0]]
    assert score([[3.0, 4.0], [6.0, 8.0]], nowhere) == pytest.approx(1.0)
    assert score([[1.0, 0.0], [0.0, 1.0]], nowhere) == pytest.approx(0.005 + 0.995 * 0.5**0.5, abs=1e-4)


@given(UNITS, UNITS, UNITS, st.floats(-64, 64))
@settings(deadline=None, max_examples=60)
def test_a_mean_lies_between_its_parts_and_is_finite(accuracy, coherence, weight, power):
    made = fused(accuracy, coherence, weight, power)
    low, high = sorted((accuracy, coherence))
    assert low - 1e-4 <= made <= high + 1e-4


def test_extreme_exponents_are_the_smaller_and_the_larger():
    assert fused(0.9, 0.3, 0.5, -64.0) == pytest.approx(0.3, abs=0.01)
    assert fused(0.9, 0.3, 0.5, 64.0) == pytest.approx(0.9, abs=0.01)
    assert fused(0.9, 0.4, 0.5, 0.0) == pytest.approx(0.6, abs=1e-4)
    assert fused(0.0, 0.5, 0.5, -1.0) == pytest.approx(0.0, abs=1e-4)  # a wrong answer is not divided by


@given(
    st.lists(st.floats(-3, 3, width=16), min_size=6, max_size=6), st.lists(st.floats(-3, 3, width=16), min_size=6, max_size=6), st.floats(0.01, 50)
)
@settings(deadline=None, max_examples=60)
def test_a_score_is_a_share_that_does_not_depend_on_scale(jacobian, twin, scale):
    one, other = (torch.tensor(values, dtype=torch.double).view(1, 3, 2) for values in (jacobian, twin))
    made = channel_score(one, other)
    assert 0.005 <= made <= 1
    assert torch.allclose(channel_score(one * scale, other), made, atol=1e-4)
    assert torch.allclose(channel_score(one, other * scale), made, atol=1e-4)


def test_the_same_jacobian_is_all_nuisance_and_none_is_nothing():
    jacobian, none = [[3.0, 4.0]], [[0.0, 0.0]]
    assert score(jacobian, jacobian) == pytest.approx(0.005, abs=1e-3)
    assert score(none, jacobian) == pytest.approx(0.005)
    assert score(jacobian, none) == pytest.approx(1.0)
    assert score([[3e-30, 4e-30]], none) == pytest.approx(1.0)


def test_what_goes_through_the_working_is_not_direct():
    through, way = torch.tensor([[[1.0, 2.0]]]), torch.tensor([[[0.0, 3.0], [0.0, 0.0]]])
    total = torch.tensor([[[5.0, 7.0]]])
    assert compute_direct_jacobian(total, through, way).flatten().tolist() == pytest.approx([5.0, 0.0])
    assert torch.equal(compute_direct_jacobian(total, through, torch.zeros(1, 2, 2)), total)


def test_a_twin_has_the_same_tokens_in_its_places():
    ids, places = torch.arange(12).view(2, 6), torch.tensor([[0, 1, 1, 1, 1, 0], [0, 0, 0, 0, 0, 0]])
    twin = shuffle_tokens(ids, places, {2}, random.Random(1))
    assert twin[0, [0, 2, 5]].tolist() == [0, 2, 5]
    assert sorted(twin[0].tolist()) == list(range(6))
    assert twin[0].tolist() != list(range(6))
    assert torch.equal(twin[1], ids[1])


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    shape = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16, "vocab_size": 130}
    return LlamaForCausalLM(LlamaConfig(**shape, pad_token_id=0)).eval()


def test_gradients_reach_the_right_parts_and_leave_the_policy_alone(model):
    ids = torch.tensor([[5, 6, 7, 8, 9, 10], [5, 6, 7, 8, 9, 11]])
    prompt, working, answer = (torch.tensor([row] * 2, dtype=torch.float32) for row in ([1, 1, 0, 0, 0, 0], [0, 0, 1, 1, 0, 0], [0, 0, 0, 0, 0, 1]))
    of_working, of_answer, to_working = compute_jacobians(model, Parts(ids, torch.ones_like(ids), prompt, working, answer))
    assert of_working[:, 2:].abs().max() == of_answer[:, 2:].abs().max() == 0.0
    assert of_working[:, :2].abs().max() > 0
    assert to_working[:, [0, 1, 4, 5]].abs().max() == 0.0
    assert torch.allclose(of_working[0], of_working[1], atol=1e-6)  # the working is the same, and the answer comes later
    assert not torch.allclose(to_working[0], to_working[1])
    assert all(parameter.grad is None for parameter in model.parameters())


def method_on(model, **config):
    method = CEPO(Config(**config))
    tokenizer = SimpleNamespace(pad_token_id=0, all_special_ids=[0, 3])
    method.run = SimpleNamespace(model=model, rng=lambda *key: random.Random(str(key)), tokenizer=tokenizer)
    return method


def batch_of(texts, rewards, group):
    width = max(1, *(len(text) for text in texts))
    ids = torch.tensor([[ord(letter) % 120 + 1 for letter in text] + [0] * (width - len(text)) for text in texts])
    mask = torch.tensor([[1.0] * len(text) + [0.0] * (width - len(text)) for text in texts])
    ends = [[min(len(text), place + 1) for place in range(width)] for text in texts]
    return rollout_batch(
        rewards, group, texts=texts, ids=ids, mask=mask, ends=ends, prompt_ids=[[3, *range(4, 14), 15 + row] for row in range(len(texts))]
    )


def test_what_is_not_there_has_no_influence(model):
    texts = [TEXT, "<think></think><answer>d</answer>", "<think>abc", "a", ""]
    channels = method_on(model).channels(batch_of(texts, [1.0] * 5, 5), list(range(5)))
    assert torch.isfinite(channels).all()
    assert (channels[:, 0] > 0.01).all()
    assert channels[0, [1, 3, 4]].tolist() == pytest.approx([0.005] * 3)  # no working
    assert channels[1:, 2:].flatten().tolist() == pytest.approx([0.005] * 6)  # no answer


def test_the_working_is_what_stands_before_the_answer_where_nothing_is_thought():
    assert working_span(TEXT) == (7, 10)
    assert working_span("<search>a</search>x<answer>d</answer>") == (0, 19)
    assert working_span("<answer>d</answer>") == (0, 0)
    assert working_span("d") is None


def test_padding_changes_nothing(model):
    alone = method_on(model).channels(batch_of([TEXT], [1.0], 1), [0])
    beside = method_on(model).channels(batch_of([TEXT, TEXT + " and a long rest"], [1.0, 1.0], 2), [0])
    assert torch.allclose(alone, beside, atol=1e-4)


def test_accuracy_alone_is_its_parent(model):
    rewards = [1.0, 0.0, 1.0, 0.0]
    batch = batch_of([TEXT] * 4, rewards, 2)
    method = method_on(model, weight=1.0, share=1.0)
    assert method.rewards(batch, batch.reward).tolist() == pytest.approx(rewards, abs=1e-6)
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
    for rollout in trained.rollouts:  # at p = 0.2 coherence decides among right answers and hardly helps wrong ones
        assert (0.16 < rollout.shaped["ce-po"] <= 1) if rollout.reward == 1 else (0 <= rollout.shaped["ce-po"] < 0.01)
