"""Coarse-to-fine rewards on a two-level taxonomy: 80 answers in 16 categories, one prompt for each, a softmax policy trained with GRPO."""

import torch

from bench.effect_cases import Case
from trainers.advantages import z_score
from trainers.methods.group.mentalseek_dx import Config, graded, progress_of

CATEGORIES, LEAVES = 16, 5
ANSWERS = CATEGORIES * LEAVES
GROUP, STEPS, RATE = 8, 150, 2.0


def leaf_accuracy(seed: int, coarse: float) -> float:
    """Mean probability of the right answer after training."""
    generator = torch.Generator().manual_seed(seed)
    truth = torch.arange(ANSWERS)
    logits = torch.zeros(ANSWERS, ANSWERS, requires_grad=True)  # prompt x answer
    for step in range(1, STEPS + 1):
        drawn = torch.multinomial(logits.detach().softmax(1), GROUP, replacement=True, generator=generator)  # (ANSWERS, G)
        category = (drawn // LEAVES == truth[:, None] // LEAVES).float()
        exact = (drawn == truth[:, None]).float()
        rewards = graded(category, exact, torch.zeros_like(exact), progress_of(step, STEPS), coarse, Config().form_weight)
        advantages = z_score(rewards.flatten(), GROUP).view_as(rewards)
        loss = -(advantages * logits.log_softmax(1).gather(1, drawn)).mean(1).sum()
        (gradient,) = torch.autograd.grad(loss, logits)
        with torch.no_grad():
            logits -= RATE * gradient / GROUP
    return float(logits.detach().softmax(1).diagonal().mean())


def measure(seed: int) -> tuple[float, float]:
    return leaf_accuracy(seed, Config().coarse), leaf_accuracy(seed, 0.0)


CASE = Case(
    method="mentalseek-dx",
    parent="grpo",
    claim="With the reward handed over from category to answer, the exact answer is right more often after the same number of steps.",
    quantity="probability of the right answer after 150 steps",
    direction="higher",
    problem="80 answers in 16 categories, softmax policy, groups of 8",
    measure=measure,
    launch={"base": "grpo"},
)
