"""GRPO-MA: the card's numbers, GRPO with one answer, the weights of thoughts and answers in the objective, and real groups of thoughts."""

from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.trainers.methods.batches import loss_batch, rollout_batch
from trainers.contract.arrays import unpack_array
from trainers.contract.problems import SpecError
from trainers.maths.advantages import z_score
from trainers.methods.group.grpo_ma import (
    GRPOMA,
    Config,
    compute_clipped_surrogate,
    segment_advantages,
    segment_objective,
    thought_tokens,
    thought_values,
)


def test_the_worked_examples():
    rewards = torch.tensor([1.0, 1, 1, 0])  # two thoughts, two answers each
    assert thought_values(rewards, 2).tolist() == [1, 0.5]
    thoughts, answers = segment_advantages(rewards, 4, 2, epsilon=0.0)
    assert thoughts.tolist() == pytest.approx([0.7071, 0.7071, -0.7071, -0.7071], abs=1e-4)
    assert answers.tolist() == pytest.approx([0.5, 0.5, 0.5, -1.5], abs=1e-4)


@given(st.lists(st.floats(-2, 2, width=32), min_size=4, max_size=4))
def test_with_one_answer_thoughts_and_answers_have_grpos_advantage(rewards):
    rewards = torch.tensor(rewards)
    thoughts, answers = segment_advantages(rewards, 4, 1)
    assert torch.equal(thoughts, answers)
    assert torch.equal(answers, z_score(rewards, 4))


@given(st.lists(st.sampled_from([0.0, 0.5, 1.0]), min_size=8, max_size=8), st.permutations(range(4)), st.floats(0.5, 4), st.floats(-3, 3))
def test_thoughts_may_change_places_and_rewards_be_moved_and_scaled(rewards, order, scale, shift):
    rewards = torch.tensor(rewards)
    places = torch.arange(8).view(4, 2)[list(order)].flatten()
    thoughts, answers = segment_advantages(rewards, 8, 2)
    for made, expected in zip(segment_advantages(rewards[places], 8, 2), (thoughts[places], answers[places]), strict=True):
        assert torch.allclose(made, expected, atol=1e-5)
    for made, expected in zip(segment_advantages(rewards * scale + shift, 8, 2), (thoughts, answers), strict=True):
        assert torch.allclose(made, expected, atol=5e-3)


@pytest.mark.parametrize("answers", [1, 2, 4])
def test_equal_rewards_and_single_thoughts_teach_nothing(answers):
    thoughts, own = segment_advantages(torch.full((4,), 0.7), 4, answers)
    assert thoughts.tolist() == own.tolist() == [0] * 4
    assert segment_advantages(torch.tensor([1.0, 0, 0, 1]), 4, 4)[0].tolist() == [0] * 4


def test_the_objective_weighs_each_thought_1_in_k_and_each_answer_1_in_km():
    """K = 2 thoughts of 3 and 1 tokens, M = 2 answers: the sum of the paper, written out."""
    torch.manual_seed(0)
    surrogate = torch.randn(4, 6)
    counts = [3, 3, 1, 1]
    lengths = [2, 1, 4, 2]  # of the answers
    mask = torch.zeros(4, 6)
    for row, (count, length) in enumerate(zip(counts, lengths, strict=True)):
        mask[row, count : count + length] = 1
        mask[row, :count] = float(row % 2 == 0)
    by_hand = sum(surrogate[row, : counts[row]].mean() for row in (0, 2)) / 2
    by_hand += sum(surrogate[row, counts[row] : counts[row] + lengths[row]].mean() for row in range(4)) / 4
    thought = thought_tokens(counts, mask)
    assert segment_objective(surrogate, mask, thought, 2).item() == pytest.approx(by_hand.item(), rel=1e-5)
    slices = [segment_objective(surrogate[part], mask[part], thought[part], 2) for part in (slice(0, 2), slice(2, 4))]
    assert sum(slices).item() / 2 == pytest.approx(by_hand.item(), rel=1e-5)  # micro-batches average to the same


def test_ratios_are_clipped_as_in_ppo():
    ratio = torch.tensor([[0.5, 1.5, 1.0]])
    assert compute_clipped_surrogate(ratio, torch.tensor([[1.0]]), (0.2, 0.2)).tolist() == [[0.5, pytest.approx(1.2), 1.0]]
    assert compute_clipped_surrogate(ratio, torch.tensor([[-1.0]]), (0.2, 0.2)).tolist() == [[pytest.approx(-0.8), -1.5, -1.0]]


def batch_of(logprobs, mask, counts, rewards):
    rollout = rollout_batch(rewards, 4, mask=mask, notes=[{"thought_tokens": count} for count in counts])
    method = GRPOMA(Config(answers=2))
    return method, loss_batch(logprobs, method.advantages(rollout, torch.zeros(4)).to(logprobs.dtype), 4, rollout=rollout, mask=mask)


def test_its_gradient_is_that_of_finite_differences_and_masked_rows_are_silent():
    mask = torch.tensor([[1.0, 1, 1], [0, 0, 1], [1, 1, 0], [0, 0, 0]], dtype=torch.double)
    old = torch.randn(4, 3, dtype=torch.double, generator=torch.Generator().manual_seed(0)) * 0.05

    def loss(logprobs):
        method, batch = batch_of(logprobs, mask, [2, 2, 2, 2], [1, 0, 0, 0])
        batch.old_logprobs = old
        return method.policy_loss(batch)

    logprobs = torch.zeros(4, 3, dtype=torch.double, requires_grad=True)
    assert torch.autograd.gradcheck(loss, logprobs)
    loss(logprobs).backward()
    assert torch.equal(logprobs.grad == 0, mask == 0)


def test_a_group_that_cannot_be_divided_is_refused():
    run = SimpleNamespace(training=SimpleNamespace(num_generations=4))
    GRPOMA(Config(answers=2)).prepare(run)
    with pytest.raises(SpecError, match="not a multiple of 3 answers"):
        GRPOMA(Config(answers=3)).prepare(run)


@pytest.mark.training
def test_two_real_steps(two_steps):
    trained = two_steps("grpo-ma", {"answers": 2}, base="grpo", training__temperature=1.0)
    assert 0 < trained.steps[0]["grpo-ma/closed_thoughts"] <= 1
    rows = {(r.step, r.group, r.sample): r for r in trained.rollouts}
    for (step, group, sample), first in rows.items():
        if sample % 2:
            continue
        second = rows[step, group, sample + 1]
        thought = first.completion.partition("</think>")[0]
        assert second.completion.partition("</think>")[0] == thought  # the answers share their thought
        own = unpack_array(second.mask) if second.mask else []
        assert own[0] == 0  # and the second has it as context only
        assert first.length > second.length or "</think>" not in first.completion
    for group in {(r.step, r.group) for r in trained.rollouts}:
        members = [rows[(*group, sample)] for sample in range(4)]
        _, answers = segment_advantages(torch.tensor([r.reward for r in members]), 4, 2)
        assert members[1].advantage == pytest.approx(answers[1].item(), abs=2e-3)
