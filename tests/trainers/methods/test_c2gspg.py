"""C2GSPG: the card's numbers, the sequence policy gradient without beta, gradients that agree, and rows it must not trust."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.trainers.methods.batches import loss_batch, rollout_batch
from trainers.methods.group.c2gspg import (
    C2GSPG,
    Config,
    calibrated_advantages,
    calibration_error,
    calibration_targets,
    log_confidence,
    mask_agreeing_rows,
)

LOGPROBS = torch.tensor([[-0.1, -0.3]])


def batch_of(rewards, logprobs, group_size=2, mask=None):
    mask = torch.ones_like(logprobs) if mask is None else mask
    rollout = rollout_batch(rewards, group_size, mask=mask.detach())
    advantages = C2GSPG().advantages(rollout, torch.zeros(len(rewards)))
    return loss_batch(logprobs, advantages.to(logprobs.dtype), group_size, mask=mask, rollout=rollout)


@pytest.mark.parametrize(("reward", "advantage", "objective", "weight"), [(1.0, 2.7583, -0.5537, 2.7683), (0.0, -2.7583, 0.5346, -2.8035)])
def test_the_worked_examples(reward, advantage, objective, weight):
    log_c = log_confidence(LOGPROBS, torch.ones(1, 2))
    assert log_c.exp().item() == pytest.approx(0.8187, abs=1e-4)
    assert calibrated_advantages(torch.tensor([reward - 0.5]), log_c).item() == pytest.approx(advantage, abs=1e-4)
    logprobs = LOGPROBS.double().repeat(2, 1).requires_grad_()  # the other of the group is right where this one is wrong: m = 0.5
    batch = batch_of([reward, 1 - reward], logprobs)
    batch.mask = batch.mask * torch.tensor([[1.0], [0.0]])  # only this one is looked at
    loss = C2GSPG(Config(beta=0.01)).policy_loss(batch)
    assert -2 * loss.item() == pytest.approx(objective, abs=1e-4)
    loss.backward()
    assert (-2 * logprobs.grad[0].sum()).item() == pytest.approx(weight, abs=1e-3)  # each token has half of the weight of log c


def test_without_beta_it_is_the_sequence_policy_gradient():
    torch.manual_seed(0)
    logprobs = (-torch.rand(4, 3, dtype=torch.double) - 0.1).requires_grad_()
    batch = batch_of([1, 0, 0, 1], logprobs, 4)
    C2GSPG(Config(beta=0.0)).policy_loss(batch).backward()
    confidence = logprobs.detach().mean(1).exp()
    expected = -(torch.tensor([0.5, -0.5, -0.5, 0.5]) / (1 - confidence + 1e-6) / 4)[:, None].expand(4, 3) / 3
    assert torch.allclose(logprobs.grad, expected)


def test_its_gradient_is_that_of_finite_differences():
    torch.manual_seed(0)
    mask = torch.tensor([[1.0, 1, 1], [1, 0, 0], [1, 1, 0], [1, 1, 1]], dtype=torch.double)
    old = -torch.rand(4, 3, dtype=torch.double) - 0.1

    def loss(logprobs):
        batch = batch_of([1, 0, 0.3, 1], logprobs, 4, mask)
        batch.old_logprobs = old
        return C2GSPG(Config(beta=0.5)).policy_loss(batch)

    assert torch.autograd.gradcheck(loss, (-torch.rand(4, 3, dtype=torch.double) - 0.1).requires_grad_())


@settings(deadline=None)
@given(st.lists(st.sampled_from([0.0, 1.0]), min_size=4, max_size=4), st.lists(st.floats(-6, -0.01), min_size=4, max_size=4))
def test_for_binary_rewards_both_terms_pull_the_same_way(rewards, values):
    gradients = []
    for beta in (0.0, 1.0):
        logprobs = torch.tensor(values, dtype=torch.double)[:, None].requires_grad_()
        C2GSPG(Config(beta=beta)).policy_loss(batch_of(rewards, logprobs, 4)).backward()
        gradients.append(logprobs.grad)
    assert ((gradients[1] - gradients[0]) * gradients[0] >= -1e-9).all()


@given(st.lists(st.floats(-2, 2, width=32), min_size=4, max_size=4), st.permutations(range(4)))
def test_targets_are_probabilities_that_follow_their_members(rewards, order):
    rewards = torch.tensor(rewards)
    targets, binary = calibration_targets(rewards, 4)
    assert ((targets >= 0) & (targets <= 1)).all()
    assert torch.allclose(calibration_targets(rewards[list(order)], 4)[0], targets[list(order)], atol=1e-3)
    assert binary == bool(((rewards == 0) | (rewards == 1)).all())


def test_a_target_that_contradicts_its_advantage_is_dropped():
    log_c = torch.tensor([0.9, 0.1, 0.2, 0.6]).log()
    assert mask_agreeing_rows(torch.tensor([0.7, 0.7, 0.4, 0.4]), torch.tensor([1.0, 1.0, -1.0, -1.0]), log_c).tolist() == [0, 1, 0, 1]


def test_sure_masked_and_equal_rows_stay_finite():
    logprobs = torch.tensor([[0.0, 0], [-1e-9, 0], [-0.5, -0.5], [-0.2, 0]]).requires_grad_()
    mask = torch.tensor([[0.0, 0], [1, 1], [1, 1], [1, 0]])
    loss = C2GSPG(Config(beta=1.0)).policy_loss(batch_of([1, 1, 0, 0], logprobs, 4, mask))
    loss.backward()
    assert torch.isfinite(loss)
    assert torch.isfinite(logprobs.grad).all()
    assert logprobs.grad[0].tolist() == [0, 0]
    assert C2GSPG(Config(beta=0.0)).policy_loss(batch_of([0.7] * 4, logprobs, 4, mask)).item() == 0.0
    assert C2GSPG().policy_loss(batch_of([1.0, 0], logprobs[:2], 2, torch.zeros(2, 2))).item() == 0.0


def test_the_calibration_error_is_that_of_its_bins():
    confidence, right = torch.tensor([0.95, 0.95, 0.15, 0.15]), torch.tensor([1.0, 0, 0, 0])
    assert calibration_error(confidence, right).item() == pytest.approx(0.5 * 0.45 + 0.5 * 0.15)


@pytest.mark.training
def test_two_real_steps(two_steps):
    trained = two_steps("c2gspg", {"beta": 0.1}, base="grpo")
    for step in trained.steps:
        assert 0 < step["c2gspg/confidence"] < 1
        assert 0 <= step["c2gspg/calibration_error"] <= 1
        assert step["loss"] == pytest.approx(step["c2gspg/policy_loss"], rel=1e-3, abs=1e-4)
    assert list(trained.rollouts[0].contributions) == ["base", "c2gspg"]
