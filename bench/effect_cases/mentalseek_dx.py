"""Coarse-to-fine rewards on a two-level taxonomy: 80 answers in 16 categories, one prompt for each, a softmax policy trained with GRPO.

A completion is four hypotheses drawn without replacement; the first of them is the answer.
"""

import torch
from torch import Tensor

from bench.effect_cases import Case, Pairs, Quantity
from trainers.maths.advantages import z_score
from trainers.methods.group.mentalseek_dx import EXACT, RANKS, STAGES, combine_graded_rewards, stage_of

CATEGORIES, LEAVES = 16, 5
ANSWERS = CATEGORIES * LEAVES
GROUP, STEPS, RATE = 8, 150, 0.25


def likelihood(logits: Tensor, drawn: Tensor) -> Tensor:
    """(P, A) logits, (P, G, K) answers drawn one after the other without replacement -> (P, G) log-probability."""
    left = logits[:, None].expand(-1, drawn.shape[1], -1)
    total = torch.zeros(drawn.shape[:2])
    for place in range(drawn.shape[2]):
        chosen = drawn[..., place, None]
        total = total + left.log_softmax(-1).gather(2, chosen)[..., 0]
        left = left.scatter(2, chosen, float("-inf"))
    return total


def leaf_accuracy(seed: int, progressive: bool) -> float:
    """Mean probability of the right answer after training."""
    generator = torch.Generator().manual_seed(seed)
    truth = torch.arange(ANSWERS)[:, None, None]
    logits = torch.zeros(ANSWERS, ANSWERS, requires_grad=True)  # prompt x answer
    for step in range(1, STEPS + 1):
        noise = -torch.empty(ANSWERS, GROUP, ANSWERS).exponential_(generator=generator).log()
        drawn = (logits.detach()[:, None] + noise).topk(RANKS, -1).indices  # (P, G, K)
        hit = (drawn == truth).float()
        hypothesis = (hit * (1 - torch.arange(RANKS) / RANKS)).sum(-1)
        category = (drawn[..., 0] // LEAVES == truth[..., 0] // LEAVES).float()
        weights = STAGES[stage_of(step, STEPS)] if progressive else EXACT
        rewards = combine_graded_rewards(category, hypothesis, hit[..., 0], torch.ones_like(category), weights)
        advantages = z_score(rewards.flatten(), GROUP).view_as(rewards)
        (gradient,) = torch.autograd.grad(-(advantages * likelihood(logits, drawn)).mean(1).sum(), logits)
        with torch.no_grad():
            logits -= RATE * gradient
    return float(logits.detach().softmax(1).diagonal().mean())


def measure(seed: int) -> Pairs:
    return {"accuracy": (leaf_accuracy(seed, True), leaf_accuracy(seed, False))}


CASE = Case(
    method="mentalseek-dx",
    parent="grpo",
    claim="With the reward handed over from category to answer, the exact answer is right more often after the same number of steps.",
    quantities=(Quantity("accuracy", "probability of the right answer after 150 steps", "higher", 0.01, "one more of a hundred answers"),),
    problem="80 answers in 16 categories, softmax policy that names four hypotheses, groups of 8",
    measure=measure,
    launch={"base": "grpo"},
)
