"""Humanline: the card's numbers, the parent without bounds and copies, no gradient outside the bounds, a reference one update behind."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.functional import logsigmoid

from tests.trainers.methods.batches import loss_batch, pair_batch
from trainers.methods.tokens.humanline import Config, Humanline, clip_log_ratios, estimate_k3_kl, mask_ratios_in_bounds

CHOSEN, REJECTED = torch.tensor([[0.5, 2.0, -3.0]]), torch.tensor([[0.2, -0.4]])
OPEN = {"lowest": -100.0, "highest": 100.0, "every": 0}


def dpo_loss(chosen, rejected, beta=0.1):
    return -logsigmoid(beta * (chosen.sum(1) - rejected.sum(1)))


def test_the_worked_example():
    method = Humanline(Config())
    chosen, rejected = method.pair_ratios(pair_batch(CHOSEN, REJECTED), CHOSEN, REJECTED)
    assert [chosen.sum().item(), rejected.sum().item()] == pytest.approx([0.5, -0.2])
    assert dpo_loss(chosen, rejected).item() == pytest.approx(0.6588, abs=1e-4)
    assert dpo_loss(CHOSEN, REJECTED).item() == pytest.approx(0.7083, abs=1e-4)
    assert method.collect()["unclipped_chosen"] == pytest.approx(1 / 3)
    assert torch.tensor([-1.5, 1.5]).exp().tolist() == pytest.approx([0.2231, 4.4817], abs=1e-4)


def test_without_bounds_and_copies_it_is_dpo():
    method = Humanline(Config(**OPEN))
    chosen, rejected = method.pair_ratios(pair_batch(CHOSEN, REJECTED), CHOSEN, REJECTED)
    assert torch.equal(chosen, CHOSEN)
    assert torch.equal(rejected, REJECTED)
    assert method.loss(pair_batch(CHOSEN, REJECTED)) is None
    assert method.reference(4, None, None) is False


def test_the_ratio_of_grpo_is_against_the_reference():
    logprobs = torch.tensor([[-1.0, -3.0]])
    batch = loss_batch(logprobs, torch.ones(1), reference_logprobs=torch.tensor([[-1.5, -1.0]]), mask=torch.tensor([[1.0, 0.0]]))
    method = Humanline(Config(lowest=-1.0, highest=0.25))
    assert method.log_ratios(batch).tolist() == [[0.25, 0.0]]
    assert method.loss(batch).item() == pytest.approx(0.01 * (0.6065 + 0.5 - 1), abs=1e-5)  # k3 of the unclipped 0.5
    assert Humanline(Config(kl=0.0)).loss(batch) is None


@given(st.lists(st.floats(-5, 5), min_size=4, max_size=4), st.permutations(range(4)))
def test_tokens_outside_the_bounds_drop_out(values, order):
    ratios = torch.tensor(values)[None].requires_grad_()
    clip_log_ratios(ratios, -1.5, 1.5).sum().backward()
    assert torch.equal(ratios.grad, mask_ratios_in_bounds(ratios.detach(), -1.5, 1.5))
    order = list(order)
    assert torch.equal(clip_log_ratios(ratios[:, order], -1.5, 1.5), clip_log_ratios(ratios, -1.5, 1.5)[:, order])


@given(st.floats(-8, 8))
def test_the_kl_estimate_is_never_negative(ratio):
    assert estimate_k3_kl(torch.tensor(ratio, dtype=torch.double)).item() >= -1e-12


def test_masked_rows_and_one_token_completions_stay_finite():
    batch = loss_batch(torch.zeros(2, 1), torch.zeros(2), reference_logprobs=torch.zeros(2, 1), mask=torch.zeros(2, 1))
    method = Humanline(Config())
    assert method.log_ratios(batch).abs().sum() == 0.0
    assert method.loss(batch).item() == 0.0
    assert all(value == value for value in method.collect().values())


def test_the_reference_is_copied_every_k_steps_and_its_age_survives_a_checkpoint():
    policy, reference = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)
    method = Humanline(Config(every=3))
    assert [method.reference(step, policy, reference) for step in (1, 2)] == [False, False]
    assert not torch.equal(policy.weight, reference.weight)
    resumed = Humanline(Config(every=3))
    resumed.restore(method.state())
    assert resumed.age == 2
    assert resumed.reference(3, policy, reference) is True
    assert torch.equal(policy.weight, reference.weight)
    assert policy.weight.data_ptr() != reference.weight.data_ptr()
    assert resumed.age == 0


@pytest.mark.training
def test_real_steps_on_pairs(two_steps):
    trained = two_steps("humanline", {"every": 2}, trainer="dpo", training__learning_rate=1e-3)
    assert [step["humanline/reference_updated"] for step in trained.steps] == [0.0, 1.0]
    assert [step["humanline/age"] for step in trained.steps] == [1.0, 0.0]
    assert trained.steps[0]["humanline/ratio_chosen"] == pytest.approx(0.0, abs=1e-6)
    assert trained.steps[0]["humanline/unclipped_chosen"] == pytest.approx(1.0)


@pytest.mark.training
def test_real_steps_of_grpo_keep_the_reference_one_update_behind(two_steps, written_answers):
    trained = two_steps("humanline", {"every": 1}, base="grpo", training__max_steps=4, training__learning_rate=1e-3)
    assert [step["humanline/reference_updated"] for step in trained.steps] == [1.0] * 4
    ratios = [step["humanline/ratio_sampled"] for step in trained.steps]
    assert ratios[0] == pytest.approx(0.0, abs=1e-6)
    assert ratios[-1] > 1e-6  # copied before the update, not after
