"""ROVER: the card's numbers, the policy gradient in the first pass, targets without gradient, and old means that belong to their batch."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.trainers.methods.batches import loss_batch, rollout_batch
from trainers.maths.advantages import z_score
from trainers.methods.group.rover import ROVER, Config, bellman_errors, next_term, vocabulary_mean

ONES = torch.ones(1, 2)


def test_the_worked_examples():
    old, new = vocabulary_mean(torch.tensor([[9.0, 9], [0, 0]])), vocabulary_mean(torch.tensor([[9.0, 9], [1, 0]]))
    assert (old[1].item(), new[1].item()) == (pytest.approx(-0.6931, abs=1e-4), pytest.approx(-0.8133, abs=1e-4))
    following = next_term(new[None], old[None], ONES, 1.0)
    assert following[0].tolist() == pytest.approx([-0.1201, 0.0], abs=1e-4)
    gaps = torch.tensor([[0.5]])
    assert (gaps + following)[0].tolist() == pytest.approx([0.3799, 0.5], abs=1e-4)
    assert bellman_errors(torch.tensor([[0.2, 0.2]]), gaps, following, 1.0)[0, 0].item() == pytest.approx(0.03236, abs=1e-5)


def test_the_vocabulary_mean_is_that_of_the_log_probabilities():
    logits = torch.randn(2, 3, 7, generator=torch.Generator().manual_seed(0))
    assert torch.allclose(vocabulary_mean(logits), torch.log_softmax(logits, -1).mean(-1), atol=1e-6)


def batch_of(logits, rollout, **fields):
    """A loss batch whose tokens are all number 0 of the vocabulary."""
    logprobs = torch.log_softmax(logits, -1)[..., 0]
    advantages = ROVER().advantages(rollout, torch.zeros(len(logits))).to(logits.dtype)
    return loss_batch(logprobs, advantages, rollout.group_size, rollout=rollout, logits=logits, **fields)


def test_the_first_pass_is_the_policy_gradient():
    rollout = rollout_batch([1, 0, 0, 0], 4)
    logits = torch.randn(4, 3, 5, generator=torch.Generator().manual_seed(0), requires_grad=True)
    batch = batch_of(logits, rollout)
    ROVER(Config(rho=0.5)).policy_loss(batch).backward()
    ours, logits.grad = logits.grad, None
    gaps = torch.tensor([0.75, -0.25, -0.25, -0.25])[:, None]
    (-2 * 0.5 * gaps * torch.log_softmax(logits, -1)[..., 0]).mean().backward()
    assert torch.allclose(ours, logits.grad, atol=1e-7)


def test_a_later_pass_regresses_towards_what_the_first_remembers():
    rollout, method = rollout_batch([1, 0], 2), ROVER(Config(rho=2.0))
    first, later = (torch.randn(2, 3, 5, generator=torch.Generator().manual_seed(seed)) for seed in (0, 1))
    method.policy_loss(batch_of(first, rollout))
    old = torch.log_softmax(first, -1)[..., 0]
    loss = method.policy_loss(batch_of(later, rollout, first_pass=False, old_logprobs=old))
    following = next_term(vocabulary_mean(later), vocabulary_mean(first), torch.ones(2, 3), 2.0)
    expected = (2.0 * (torch.log_softmax(later, -1)[..., 0] - old) - torch.tensor([[0.5], [-0.5]]) - following) ** 2
    assert loss.item() == pytest.approx(expected.mean().item(), rel=1e-5)
    other = rollout_batch([1, 0], 2)  # another sampled batch begins anew
    method.collect()
    method.policy_loss(batch_of(later, other))
    assert method.collect()["next_term_size"] == 0.0


def test_slices_of_a_batch_remember_their_own_rows():
    rollout, method = rollout_batch([1, 0], 2), ROVER()
    logits = torch.randn(2, 3, 5, generator=torch.Generator().manual_seed(0))
    for row in (1, 0):
        method.old_means(loss_batch(torch.zeros(1, 3), torch.zeros(1), 1, rollout=rollout, rows=torch.tensor([row])), vocabulary_mean(logits[[row]]))
    assert torch.equal(method.old, vocabulary_mean(logits))


def test_its_gradient_is_that_of_finite_differences_with_the_target_held():
    """The target does not move with the logits, so only the log-probability of the token itself is differentiated."""
    old, following = torch.randn(2, 3, dtype=torch.double), torch.randn(2, 3, dtype=torch.double)
    gaps = torch.tensor([[0.5], [-0.5]], dtype=torch.double)
    logprobs = torch.randn(2, 3, dtype=torch.double, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: bellman_errors(x - old, gaps, following, 1.5).mean(), logprobs)


@given(st.integers(0, 999), st.lists(st.floats(0, 1, width=32), min_size=4, max_size=4), st.permutations(range(4)))
def test_masked_tokens_and_the_order_of_a_group_do_not_count(seed, rewards, order):
    generator, order = torch.Generator().manual_seed(seed), list(order)
    logits, mask = torch.randn(4, 3, 5, generator=generator), (torch.rand(4, 3, generator=generator) > 0.4).float()
    noise = torch.randn(4, 3, 5, generator=generator) * (1 - mask)[..., None]
    losses = []
    for x, m, r in ((logits, mask, rewards), (logits + noise, mask, rewards), (logits[order], mask[order], [rewards[i] for i in order])):
        losses.append(ROVER().policy_loss(batch_of(x, rollout_batch(r, 4, mask=m), mask=m)).item())
    assert losses == pytest.approx([losses[0]] * 3, abs=1e-5)


def test_the_spread_is_divided_out_only_when_asked_and_equal_rewards_teach_nothing():
    batch = rollout_batch([1, 0, 0, 0], 4)
    assert torch.equal(ROVER(Config(normalise=True)).advantages(batch, torch.zeros(4)), z_score(batch.shaped, 4))
    assert ROVER().advantages(rollout_batch([0.7] * 4, 4), torch.zeros(4)).tolist() == [0] * 4
    assert ROVER().advantages(rollout_batch([0.7, 1], 1), torch.zeros(2)).tolist() == [0, 0]


@pytest.mark.training
def test_two_real_steps(two_steps, written_answers):
    task = {"name": "mini_gsm", "rewards": {"working": 1.0, "format": 1.0}}
    trained = two_steps("rover", base="grpo", task=task, training__num_iterations=2, training__warmup_steps=0)
    first, second = trained.steps
    assert first["rover/q"] == pytest.approx(0, abs=1e-6)
    assert first["rover/next_term_size"] == pytest.approx(0.0, abs=1e-6)
    assert second["rover/next_term_size"] > 1e-6
    assert second["loss"] == pytest.approx(second["rover/policy_loss"], rel=1e-3, abs=1e-4)
