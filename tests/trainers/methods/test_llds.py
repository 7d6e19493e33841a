"""LLDS: the card's numbers, actions as runs of preserved tokens, no term on the policy that sampled, a gradient on fallen tokens only."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.trainers.methods.batches import loss_batch, rollout_batch
from trainers.methods.tokens.llds import LLDS, Config, displacement_loss, number_token_runs

NUMBERS = st.lists(st.floats(-5, 0), min_size=8, max_size=8)


def test_the_worked_example():
    """Two turns with a token of the world between them."""
    old = torch.tensor([[-1.0, -0.5, -0.2, 0.0, -0.3, -0.4]])
    new = torch.tensor([[-1.2, -0.4, -0.3, 0.0, -0.2, -0.35]])
    mask = torch.tensor([[1.0, 1, 1, 0, 1, 1]])
    term, gated = displacement_loss(new, old, torch.ones(1, 1), mask, "action")
    assert gated.tolist() == [[True, True, True, False, False, False]]
    assert 0.2 * term.item() == pytest.approx(0.012)
    whole, gated = displacement_loss(new, old, torch.ones(1, 1), mask, "response")  # +0.2 - 0.15 > 0: one action
    assert gated.sum() == 5
    assert whole.item() == pytest.approx(0.06)


def test_runs_are_maximal_and_counted_in_each_row():
    kept = torch.tensor([[1, 1, 0, 1], [0, 1, 1, 1]]).bool()
    assert number_token_runs(kept).tolist() == [[1, 1, 0, 2], [0, 1, 1, 1]]


@given(NUMBERS)
def test_the_policy_that_sampled_has_no_term(logprobs):
    logprobs = torch.tensor(logprobs).view(2, 4)
    term, gated = displacement_loss(logprobs, logprobs.clone(), torch.ones(2, 1), torch.ones(2, 4), "action")
    assert term.item() == 0.0
    assert not gated.any()


def test_without_weight_it_adds_nothing():
    batch = loss_batch(torch.full((2, 3), -2.0), torch.ones(2), old_logprobs=torch.full((2, 3), -1.0))
    assert LLDS(Config(weight=0.0)).loss(batch).item() == 0.0
    assert LLDS(Config(weight=1.0)).loss(batch).item() == pytest.approx(1.0)


@settings(deadline=None)
@given(NUMBERS, NUMBERS, st.lists(st.floats(-1, 1), min_size=2, max_size=2), st.lists(st.booleans(), min_size=8, max_size=8))
def test_only_fallen_tokens_in_the_loss_of_rows_that_were_not_worse_get_a_gradient(new, old, advantages, mask):
    new = torch.tensor(new).view(2, 4).requires_grad_()
    old, mask = torch.tensor(old).view(2, 4), torch.tensor(mask).float().view(2, 4)
    advantages = torch.tensor(advantages)[:, None]
    term, _ = displacement_loss(new, old, advantages, mask, "action")
    assert torch.isfinite(term)
    assert term.item() >= 0
    term.backward()
    touched = new.grad != 0
    assert not (touched & ~((mask > 0) & (advantages >= 0) & (new < old))).any()
    assert (new.grad <= 0).all()  # descent raises them


def test_its_gradient_is_that_of_finite_differences():
    torch.manual_seed(0)
    new, old = torch.randn(2, 5, dtype=torch.double, requires_grad=True), torch.randn(2, 5, dtype=torch.double)
    assert torch.autograd.gradcheck(lambda x: displacement_loss(x, old, torch.ones(2, 1), torch.ones(2, 5), "response")[0], new)


def test_masked_rows_and_one_token_completions_stay_finite():
    for mask in (torch.zeros(2, 1), torch.ones(2, 1)):
        method = LLDS(Config())
        loss = method.loss(loss_batch(torch.full((2, 1), -2.0), torch.zeros(2), old_logprobs=torch.full((2, 1), -1.0), mask=mask))
        assert torch.isfinite(loss)
        assert all(value == value for value in method.collect().values())


def of_likelihood(value):
    rollout = rollout_batch([1.0, 0.0], 2)
    return loss_batch(torch.full((2, 3), value), torch.zeros(2), rollout=rollout)


def test_phases_follow_the_likelihood_of_right_completions_and_survive_a_checkpoint():
    method, phases = LLDS(Config(decay=0.1)), []
    for value in [-0.5, -0.3, *[-0.8] * 3, *[-3.0] * 8]:
        method.loss(of_likelihood(value))
        phases.append(method.phase())
    assert phases[0] == phases[1] == 0
    assert phases[-1] == 2
    assert sorted(phases) == phases
    assert 1 in phases
    resumed = LLDS(Config(decay=0.1))
    resumed.restore(method.state())
    assert (resumed.phase(), resumed.state()) == (2, method.state())


@pytest.mark.training
def test_two_real_steps(two_steps, written_answers):
    trained = two_steps("llds", {"weight": 1.0}, base="grpo", training__num_iterations=2, training__learning_rate=0.1, training__max_steps=4)
    # The two passes over the second batch. The warm-up's first step moves nothing, the next so far that every likelihood falls.
    first, second = trained.steps[2:]
    assert first["llds/loss"] == pytest.approx(0.0, abs=1e-6)
    assert second["llds/loss"] > 1e-6
    assert second["llds/loss"] == pytest.approx(second["llds/displacement"])
    assert first["llds/likelihood_wrong"] < 0
    assert "llds/likelihood_wrong" not in second  # measured once a batch
