"""FARL: the card's numbers and slopes, GRPO without weight, a mask that spares the form of an answer."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.trainers.conftest import events_in, make_spec
from trainers.attempt import train
from trainers.contract.events import Metrics
from trainers.methods.tokens.farl import answer_tokens, forget_loss

POLICY, REFERENCE = [[-0.2, -1.5]], [[-0.5, -1.0]]


def test_the_worked_example_and_its_slopes():
    logprobs = torch.tensor(POLICY, requires_grad=True)
    terms = -torch.nn.functional.logsigmoid(torch.tensor(REFERENCE) - logprobs)
    assert terms[0].tolist() == pytest.approx([0.8544, 0.4741], abs=1e-4)
    loss = 0.01 * forget_loss(logprobs, torch.tensor(REFERENCE), torch.ones(1, 2))
    assert loss.item() == pytest.approx(0.006642, abs=1e-6)
    loss.backward()
    assert (logprobs.grad[0] / 0.005).tolist() == pytest.approx([0.5744, 0.3775], abs=1e-4)


def test_its_gradient_is_that_of_finite_differences():
    torch.manual_seed(0)
    logprobs, reference = -torch.rand(2, 3, dtype=torch.double).requires_grad_(), -torch.rand(2, 3, dtype=torch.double)
    mask = torch.tensor([[1.0, 1, 0], [0, 0, 0]], dtype=torch.double)
    assert torch.autograd.gradcheck(lambda x: forget_loss(x, reference, mask), logprobs.detach().requires_grad_())


@given(st.lists(st.floats(-60, 0), min_size=4, max_size=4), st.lists(st.floats(-60, 0), min_size=4, max_size=4), st.permutations(range(4)))
def test_it_only_ever_pushes_down_and_fades(policy, reference, order):
    logprobs = torch.tensor([policy]).requires_grad_()
    loss = forget_loss(logprobs, torch.tensor([reference]), torch.ones(1, 4))
    loss.backward()
    assert torch.isfinite(loss)
    assert ((logprobs.grad >= 0) & (logprobs.grad <= 0.25 + 1e-6)).all()
    order = list(order)
    assert forget_loss(logprobs[:, order], torch.tensor([reference])[:, order], torch.ones(1, 4)).item() == pytest.approx(loss.item(), rel=1e-4)


def test_nothing_to_forget_is_no_loss():
    assert forget_loss(torch.zeros(2, 1), torch.zeros(2, 1), torch.zeros(2, 1)).item() == 0.0


def test_only_the_answer_itself_is_forgotten():
    assert answer_tokens(["<think>", "</think>", "<answer>", "1", "0", "</answer>"], 23, 25) == [0, 0, 0, 1, 1, 0]
    assert answer_tokens(["ab", "cd"], 1, 3) == [1, 1]  # a piece that holds some of it


@pytest.mark.training
def test_real_steps(two_steps):
    trained = two_steps("farl", {"weight": 1.0}, base="grpo", training__max_steps=4, training__learning_rate=3e-3)
    first, *_, last = trained.steps
    assert first["farl/forget_loss"] == pytest.approx(0.6931, abs=1e-3)  # the policy is still the reference
    assert 0 < first["farl/bare_probability"] == pytest.approx(first["farl/bare_probability_reference"], rel=1e-3)
    assert last["farl/bare_probability"] < last["farl/bare_probability_reference"]


@pytest.mark.training
def test_without_weight_it_is_grpo(two_steps, tmp_path):
    off = two_steps("farl", {"weight": 0.0}, base="grpo", training__learning_rate=1e-3)
    plain = tmp_path / "plain"
    assert train.run_training(make_spec(plain, base={"name": "grpo"}, training__max_steps=2, training__learning_rate=1e-3), plain) == train.FINISHED
    parent = [event.values for event in events_in(plain) if isinstance(event, Metrics) and "loss" in event.values]
    for own, theirs in zip(off.steps, parent, strict=True):
        assert (own["loss"], own["grad_norm"], own["reward"]) == pytest.approx((theirs["loss"], theirs["grad_norm"], theirs["reward"]), abs=1e-7)
