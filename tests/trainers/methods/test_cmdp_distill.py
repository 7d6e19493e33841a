"""Constrained distillation: the card's numbers, the plain reward within the budget, exact gradients, a teacher from a folder."""

from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.trainers.methods.batches import loss_batch, rollout_batch
from trainers.contract.problems import SpecError
from trainers.methods.group.cmdp_distill import CMDPDistill, Config, compute_remaining_budget, constrain_rewards, mask_budget_violations, token_kl

COSTS = torch.tensor([[0.2, 0.3, 0.1, 0.4]])
ROWS = st.lists(st.lists(st.floats(0, 2, width=32), min_size=3, max_size=3), min_size=4, max_size=4)


def shaped(budget, penalty=1.0, costs=COSTS, rewards=(1.0,)):
    held = mask_budget_violations(costs, torch.full((len(costs),), budget))
    return constrain_rewards(torch.tensor(rewards), costs, held, penalty)


def test_the_worked_examples():
    assert compute_remaining_budget(COSTS, torch.tensor([0.5]))[0].tolist() == pytest.approx([0.3, 0.0, -0.1, -0.5], abs=1e-6)
    assert shaped(0.5).item() == pytest.approx(-0.5)
    assert shaped(1.2).item() == 1.0
    soft = CMDPDistill(Config(constraint="soft")).constrain(torch.tensor([1.0]), COSTS, torch.tensor([4.0]))
    assert soft.item() == pytest.approx(0.0)


def test_a_budget_met_exactly_is_kept():
    assert shaped(1.0).item() == 1.0  # 0.2 + 0.3 + 0.1 + 0.4 is not 1 in floats


def test_the_divergence_of_equal_distributions_is_0_and_of_others_positive():
    torch.manual_seed(0)
    one, other = torch.randn(2, 3, 5, 7).log_softmax(-1)
    assert token_kl(one, one).abs().max() < 1e-6
    assert (token_kl(one, other) > 0).all()


@given(ROWS, st.floats(0, 6), st.permutations(range(4)))
@settings(deadline=None, max_examples=40)
def test_only_a_completion_within_its_budget_keeps_its_reward(rows, budget, order):
    costs, rewards = torch.tensor(rows), torch.tensor([1.0, 0.0, 0.5, 1.0])
    held = mask_budget_violations(costs, torch.full((4,), budget))
    made = constrain_rewards(rewards, costs, held, 1.0)
    within = held.sum(1) == 0
    assert torch.equal(made[within], rewards[within])
    assert (made[~within] <= 0).all()
    assert (held.diff(dim=1) >= 0).all()  # spent is spent
    turned = constrain_rewards(rewards[list(order)], costs[list(order)], held[list(order)], 1.0)
    assert torch.equal(made[list(order)], turned)


def test_masked_rows_and_single_tokens_are_finite():
    costs = torch.tensor([[0.0], [3.0]])
    method = CMDPDistill(Config(per_token=True, budget=1.0))
    assert method.constrain(torch.tensor([1.0, 1.0]), costs, torch.tensor([0.0, 1.0])).tolist() == [1.0, -3.0]
    assert method.collect()["satisfied"] == 0.5


def fixed_teacher(method, logits):
    method.teacher, method.run = None, SimpleNamespace()
    method.of_teacher = lambda prompts, ids: logits.log_softmax(-1)
    return method


def test_without_a_limit_it_is_its_parent():
    method = fixed_teacher(CMDPDistill(Config(budget=1e9)), torch.randn(2, 3, 5))
    rewards = torch.tensor([0.3, 1.0])
    assert torch.equal(method.constrain(rewards, torch.rand(2, 3), torch.tensor([3.0, 3.0])), rewards)
    assert method.loss(loss_batch(torch.zeros(2, 3), torch.zeros(2), logits=torch.randn(2, 3, 5))) is None


def test_the_loss_is_the_divergence_of_the_violating_tokens_alone():
    torch.manual_seed(0)
    method = fixed_teacher(CMDPDistill(Config(penalty=2.0)), torch.randn(2, 3, 5, dtype=torch.double))
    method.violating = torch.tensor([[0.0, 1, 1], [0, 0, 0]])
    mask = torch.tensor([[1.0, 1, 0], [1, 1, 1]])
    logits = torch.randn(2, 3, 5, dtype=torch.double, requires_grad=True)
    rollout = rollout_batch([0, 0], 2, mask=mask, prompt_ids=[[0], [0]])
    batch = loss_batch(torch.zeros(2, 3), torch.zeros(2), rollout=rollout, mask=mask, logits=logits)
    term = method.direct(batch)
    assert (term != 0).tolist() == [[False, True, False], [False, False, False]]

    def total(values):
        return method.loss(loss_batch(torch.zeros(2, 3), torch.zeros(2), rollout=rollout, mask=mask, logits=values)).sum()

    assert torch.autograd.gradcheck(total, logits, eps=1e-6, atol=1e-6)


@pytest.mark.parametrize(("base", "divisor"), [("dr_grpo", 2 * 3), ("dapo", 5), ("grpo", None)])
def test_the_direct_term_is_reduced_as_the_bases_own(base, divisor):
    """Under Dr. GRPO a completion's sum over B times the longest completion, so that the two terms of the gradient are on one scale."""
    torch.manual_seed(0)
    method = fixed_teacher(CMDPDistill(Config(penalty=2.0, constraint="soft")), torch.randn(2, 3, 5))
    method.violating, mask = torch.ones(2, 3), torch.tensor([[1.0, 1, 0], [1, 1, 1]])
    rollout = rollout_batch([0, 0], 2, mask=mask, prompt_ids=[[0], [0]])
    batch = loss_batch(torch.zeros(2, 3), torch.zeros(2), rollout=rollout, mask=mask, logits=torch.randn(2, 3, 5), loss_type=base)
    sums = (method.direct(batch) * mask).sum(1)
    expected = sums.sum() / divisor if divisor else (sums / mask.sum(1)).mean()
    assert method.loss(batch).item() == pytest.approx(expected.item(), rel=1e-5)


def test_a_teacher_with_another_vocabulary_is_refused():
    other = SimpleNamespace(config=SimpleNamespace(vocab_size=9))
    run = SimpleNamespace(frozen=lambda folder: other, model=SimpleNamespace(config=SimpleNamespace(vocab_size=7)))
    with pytest.raises(SpecError, match="9 tokens, the policy 7"):
        CMDPDistill(Config(teacher="somewhere")).prepare(run)


def test_it_says_how_much_was_spent():
    method = CMDPDistill(Config(budget=0.5))
    method.constrain(rollout_batch([1, 1], 2).reward, COSTS.expand(2, 4) * torch.tensor([[1.0], [0.1]]), torch.tensor([4.0, 4.0]))
    logged = method.collect()
    assert logged["satisfied"] == 0.5
    assert logged["divergence"] == pytest.approx(0.55)


@pytest.mark.training
def test_real_steps_leave_the_teacher_and_are_held_back(two_steps):
    trained = two_steps("cmdp-distill", {"budget": 1e-5}, base="dr-grpo", training__learning_rate=3e-3, training__max_steps=3)
    first, _, last = trained.steps
    assert first["cmdp-distill/divergence"] == pytest.approx(0.0, abs=1e-6)  # the teacher is where the run began
    assert first["cmdp-distill/satisfied"] == 1.0
    assert last["cmdp-distill/satisfied"] < 1.0
    assert last["cmdp-distill/loss"] > 0
    assert all(r.shaped["cmdp-distill"] == r.reward for r in trained.rollouts if r.step == 1)
