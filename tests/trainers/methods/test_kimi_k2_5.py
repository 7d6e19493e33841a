"""Kimi K2.5: the card's numbers, the plain policy gradient within the bounds, a mask that knows no sign, and budgets that are kept."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.trainers.methods.batches import loss_batch, rollout_batch
from trainers.methods.group.kimi_k2_5 import (
    Config,
    KimiK25,
    critical_steps,
    limited_phase,
    mask_ratios_in_bounds,
    masked_ratio_loss,
    parl_reward,
    toggle_rewards,
)

LENGTHS, BUDGETS = torch.tensor([300.0, 500, 900, 400]), torch.full((4,), 600.0)


def test_the_worked_examples():
    assert toggle_rewards(torch.tensor([1.0, 1, 1, 0]), LENGTHS, BUDGETS, 4, 0.7).tolist() == [1, 1, 0, 0]
    assert toggle_rewards(torch.tensor([1.0, 0, 0, 0]), LENGTHS, BUDGETS, 4, 0.7).tolist() == [1, 0, 0, 0]
    assert mask_ratios_in_bounds(torch.tensor([0.4, 1.0, 2.5]).log(), 0.5, 2.0).tolist() == [0, 1, 0]
    assert critical_steps([(1, [3, 5]), (1, [])]) == 7


def test_the_phases_alternate():
    assert [limited_phase(step, 2) for step in range(1, 7)] == [True, True, False, False, True, True]


def test_the_orchestrators_auxiliary_rewards_fade():
    assert parl_reward(1.0, 0.5, 2, 4, (0.4, 0.2), 0.0) == pytest.approx(1.3)
    assert parl_reward(1.0, 0.5, 2, 4, (0.4, 0.2), 1.0) == 1.0
    assert parl_reward(1.0, 0.0, 0, 0, (0.4, 0.2), 0.0) == 1.0


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_outside_its_bounds_a_token_has_no_gradient_whatever_the_sign(sign):
    log_ratio = torch.tensor([[0.4, 1.0, 2.5]]).log().requires_grad_()
    masked_ratio_loss(log_ratio, torch.tensor([[sign]]), 0.5, 2.0, 0.0).sum().backward()
    assert log_ratio.grad[0].tolist() == pytest.approx([0, -sign, 0])


def test_in_the_first_pass_without_toggle_it_is_the_policy_gradient_over_all_tokens():
    """The parent's: DAPO's loss where every ratio is 1."""
    torch.manual_seed(0)
    mask = torch.tensor([[1.0, 1, 1], [1, 0, 0]])
    logprobs = (-torch.rand(2, 3)).requires_grad_()
    batch = loss_batch(logprobs, torch.tensor([0.5, -0.5]), mask=mask)
    KimiK25().policy_loss(batch).backward()
    assert torch.allclose(logprobs.grad, -torch.tensor([[0.5], [-0.5]]) * mask / 4)
    free = rollout_batch([1, 0], 2)
    assert torch.equal(KimiK25(Config(period=0)).rewards(free, free.reward), free.reward)


def test_its_gradient_is_that_of_finite_differences():
    torch.manual_seed(0)
    old, mask = torch.randn(2, 3, dtype=torch.double), torch.tensor([[1.0, 1, 1], [1, 0, 0]], dtype=torch.double)

    def loss(logprobs):
        return KimiK25(Config(tau=0.5)).policy_loss(loss_batch(logprobs, torch.tensor([1.0, -1]), mask=mask, old_logprobs=old))

    assert torch.autograd.gradcheck(loss, torch.randn(2, 3, dtype=torch.double, requires_grad=True))


def test_masked_rows_cost_nothing():
    logprobs = torch.randn(2, 1).requires_grad_()
    loss = KimiK25().policy_loss(loss_batch(logprobs, torch.ones(2), mask=torch.zeros(2, 1)))
    loss.backward()
    assert (loss.item(), logprobs.grad.abs().sum().item()) == (0.0, 0.0)


@given(
    st.lists(st.sampled_from([0.0, 1.0]), min_size=4, max_size=4),
    st.lists(st.integers(0, 40), min_size=4, max_size=4),
    st.floats(0, 40),
    st.permutations(range(4)),
)
def test_toggle_only_takes_and_only_from_long_answers(rewards, lengths, budget, order):
    rewards, lengths, order = torch.tensor(rewards), torch.tensor(lengths, dtype=torch.float32), list(order)
    budgets = torch.full((4,), budget)
    made = toggle_rewards(rewards, lengths, budgets, 4, 0.7)
    assert (made <= rewards).all()
    assert torch.equal(made[lengths <= budgets], rewards[lengths <= budgets])
    assert torch.equal(toggle_rewards(rewards[order], lengths[order], budgets, 4, 0.7), made[order])


def test_a_budget_comes_from_the_first_right_answers_and_survives_a_checkpoint():
    mask = torch.tensor([[1.0, 1, 1, 1], [1, 1, 0, 0], [1, 1, 1, 0], [1, 0, 0, 0]])
    method = KimiK25(Config(period=1, percentile=50.0, gate=0.5))
    wrong, first = rollout_batch([0, 0, 0, 0], 4, mask=mask), rollout_batch([1, 1, 0, 0], 4, mask=mask)
    assert method.rewards(wrong, wrong.reward).tolist() == [0] * 4
    assert not method.budgets
    assert method.rewards(first, first.reward).tolist() == [0, 1, 0, 0]
    assert method.budgets == {0: 3.0}
    resumed = KimiK25(Config(period=1, percentile=50.0, gate=0.5))
    resumed.restore(method.state())
    later = rollout_batch([0, 1, 0, 1], 4, mask=mask, step=3)
    assert resumed.rewards(later, later.reward).tolist() == [0, 1, 0, 1]
    assert resumed.budgets == {0: 3.0}
    free = rollout_batch([1, 1, 0, 0], 4, mask=mask, step=2)
    assert resumed.rewards(free, free.reward).tolist() == [1, 1, 0, 0]


@pytest.mark.training
def test_two_real_steps(two_steps, written_answers):
    """One answer of each group is right, so that every prompt is held to that answer's length, and answers differ, so that the policy moves."""
    config = {"gate": 0.0, "period": 1, "percentile": 0.0, "high": 1.001, "low": 0.999}
    task = {"name": "mini_gsm", "rewards": {"correct": 1.0, "working": 1.0, "format": 1.0}}
    training = {"num_iterations": 2, "warmup_steps": 0, "max_steps": 3}
    trained = two_steps("kimi-k2.5", config, base="dapo", task=task, **{f"training__{name}": value for name, value in training.items()})
    first, second, third = trained.steps
    assert first["kimi-k2.5/masked_share"] == third["kimi-k2.5/masked_share"] == 0.0
    assert second["kimi-k2.5/masked_share"] > 0  # the second pass over a batch
    assert first["kimi-k2.5/phase"] == 0.0
    for group in {(r.step, r.group) for r in trained.rollouts}:
        rows = [r for r in trained.rollouts if (r.step, r.group) == group]
        budget = next(r.length for r in rows if r.rewards["correct"] == 1)  # both batches begin in the limited phase
        for rollout in rows:
            assert rollout.shaped["kimi-k2.5"] == pytest.approx(0.0 if rollout.length > budget else rollout.reward, rel=1e-6)
    assert any(r.shaped["kimi-k2.5"] == 0 < r.reward for r in trained.rollouts)
