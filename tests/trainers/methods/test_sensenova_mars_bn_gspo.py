"""BN-GSPO: the card's numbers, GSPO without the second standardisation, and its loss against plain arithmetic."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.trainers.methods.batches import loss_batch, rollout_batch
from trainers.maths.advantages import z_score
from trainers.methods.group.sensenova_mars_bn_gspo import BNGSPO, Config, batch_normalised, clipped_loss, sequence_ratios

BATCH = st.lists(st.sampled_from([0.0, 0.5, 1.0, 1.5]), min_size=8, max_size=8)


def test_the_worked_example():
    own = z_score(torch.tensor([1.0, 1, 1, 1, 1, 0, 0, 0]), 4, epsilon=1e-6)
    assert own.tolist() == pytest.approx([0, 0, 0, 0, 1.5, -0.5, -0.5, -0.5], abs=1e-4)
    assert batch_normalised(own).tolist() == pytest.approx([0, 0, 0, 0, 2.4495, -0.8165, -0.8165, -0.8165], abs=1e-4)
    logprobs = torch.tensor([[0.1, -0.05, 0.2]])
    assert sequence_ratios(logprobs, torch.zeros(1, 3), torch.ones(1, 3)).tolist() == [pytest.approx([1.0869] * 3, abs=1e-4)]


@given(BATCH)
def test_without_the_second_standardisation_advantages_are_grpos(rewards):
    batch = rollout_batch(rewards, 4)
    assert torch.allclose(BNGSPO(Config(batch_norm=False)).advantages(batch, torch.zeros(8)), z_score(batch.reward, 4), atol=1e-3)


@given(BATCH, st.permutations(range(4)), st.floats(0.5, 4), st.floats(-2, 2))
def test_the_batch_has_deviation_1_follows_its_members_and_ignores_shift_and_scale(rewards, order, scale, shift):
    rewards = torch.tensor(rewards)
    made = batch_normalised(z_score(rewards, 4, epsilon=1e-6))
    assert torch.isfinite(made).all()
    if made.abs().sum() > 0:
        assert made.std(correction=0).item() == pytest.approx(1.0, abs=1e-4)
    order = [*order, 4, 5, 6, 7]
    assert torch.allclose(batch_normalised(z_score(rewards[order], 4, epsilon=1e-6)), made[order], atol=1e-4)
    assert torch.allclose(batch_normalised(z_score(scale * rewards + shift, 4, epsilon=1e-6)), made, atol=1e-3)


def test_equal_rewards_and_groups_of_one_teach_nothing():
    for rewards, size in ([0.7] * 8, 4), ([1.0, 0.0, 0.3], 1):
        assert BNGSPO().advantages(rollout_batch(rewards, size), torch.zeros(len(rewards))).abs().sum() == 0


def test_a_right_form_is_paid_where_the_task_has_one():
    batch = rollout_batch([1, 0], 2)
    batch.reward_names, batch.rewards = ["correct", "format"], torch.tensor([[1.0, 1.0], [0.0, float("nan")]])
    assert BNGSPO().rewards(batch, batch.reward).tolist() == [1.5, 0.0]
    assert BNGSPO().rewards(rollout_batch([1, 0], 2), batch.reward).tolist() == [1.0, 0.0]


def test_the_loss_is_that_of_the_whole_completions_clipped():
    old, mask = torch.zeros(3, 2), torch.tensor([[1.0, 1.0], [1.0, 0.0], [0.0, 0.0]])
    new, advantages = torch.tensor([[0.6, 0.2], [-0.5, 9.0], [5.0, 5.0]]), torch.tensor([[1.0], [-2.0], [3.0]])
    first, second = min(math.exp(0.4), 1.28), max(math.exp(-0.5), 0.8)
    expected = -(first * 1.0 + second * -2.0 + 0.0) / 3
    assert clipped_loss(sequence_ratios(new, old, mask), advantages, mask, 0.2, 0.28).item() == pytest.approx(expected, abs=1e-6)


def test_in_the_first_pass_its_gradient_is_grpos():
    torch.manual_seed(0)
    logprobs, advantages = (-torch.rand(4, 3)).requires_grad_(), torch.tensor([1.0, -1, 0.5, 0])
    mask = torch.tensor([[1.0, 1, 1], [1, 1, 0], [1, 0, 0], [0, 0, 0]])
    BNGSPO().policy_loss(loss_batch(logprobs, advantages, mask=mask)).backward()
    expected = -advantages[:, None] * mask / mask.sum(1, keepdim=True).clamp(min=1) / 4
    assert torch.allclose(logprobs.grad, expected, atol=1e-6)


def test_its_gradient_is_the_ratio_times_that_of_each_token():
    torch.manual_seed(0)
    logprobs, old = (-torch.rand(2, 3, dtype=torch.double)).requires_grad_(), -torch.rand(2, 3, dtype=torch.double)
    mask, advantages = torch.ones(2, 3, dtype=torch.double), torch.tensor([[1.0], [-1.0]], dtype=torch.double)
    ratios = (logprobs.detach() - old).mean(1, keepdim=True).exp()
    clipped_loss(sequence_ratios(logprobs, old, mask), advantages, mask, 0.9, 9.0).backward()
    assert torch.allclose(logprobs.grad, -(advantages * ratios / 3 / 2).expand(2, 3))


@pytest.mark.training
def test_two_real_steps(two_steps, written_answers):
    trained = two_steps("sensenova-mars-bn-gspo", base="grpo", training__num_iterations=2, training__warmup_steps=0)
    first = sorted((r for r in trained.rollouts if r.step == 1), key=lambda r: (r.group, r.sample))
    expected = batch_normalised(z_score(torch.tensor([r.shaped["sensenova-mars-bn-gspo"] for r in first]), 4, epsilon=1e-6))
    assert [r.advantage for r in first] == pytest.approx(expected.tolist(), abs=1e-4)
    assert trained.steps[0]["sensenova-mars-bn-gspo/ratio"] == pytest.approx(1.0, abs=1e-5)
    assert abs(trained.steps[1]["sensenova-mars-bn-gspo/ratio"] - 1.0) > 1e-6
