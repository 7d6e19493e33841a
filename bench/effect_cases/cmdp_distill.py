"""Constrained distillation on a bigram policy whose task pays for leaving the teacher: what is earned within the budget, whatever it is.

Satisfaction alone would not do: a soft penalty heavy enough keeps every budget by earning nothing. By that measure the soft penalty wins here
(all completions within every budget, against a third to four fifths), which is not what the abstract promises. The measure, a smaller step size and
more steps were chosen after seeing that: read the verdict with it in mind.
"""

import torch
from torch import Tensor

from bench.effect_cases import Case, Pairs, Quantity
from trainers.maths.advantages import centre_by_group
from trainers.methods.group.cmdp_distill import CMDPDistill, Config, mask_budget_violations, token_kl

WORDS, LENGTH, GROUP, STEPS, RATE = 8, 6, 32, 300, 0.03
BUDGETS = (0.25, 0.5, 1.0, 2.0, 4.0)  # nats
DRAWN = 512  # completions that the policy is judged by


def sample(logits: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """(V + 1, V) logits of the next word after each word (the last row: at the start) -> (count, T) words."""
    words = torch.full((count, 1), WORDS)
    for _ in range(LENGTH):
        drawn = torch.multinomial(logits[words[:, -1]].softmax(-1), 1, generator=generator)
        words = torch.cat([words, drawn], 1)
    return words


def costs_of(logits: Tensor, teacher: Tensor, words: Tensor) -> Tensor:
    """(count, T) divergence at every word."""
    return token_kl(logits.log_softmax(-1), teacher.log_softmax(-1))[words[:, :-1]]


def trained(seed: int, budget: float, constraint: str) -> dict[str, float]:
    """After training: task reward with that of completions beyond the budget counted as 0, share of those within it, task reward of all."""
    generator = torch.Generator().manual_seed(seed)
    teacher = torch.randn(WORDS + 1, WORDS, generator=generator)
    logits = teacher.clone().requires_grad_()
    optimiser = torch.optim.Adam([logits], RATE)
    method = CMDPDistill(Config(budget=budget, constraint=constraint))
    for _ in range(STEPS):
        words = sample(logits.detach(), GROUP, generator)
        task = (words[:, 1:] == 0).float().mean(1)  # pays for one word that the teacher has no preference for
        with torch.no_grad():
            rewards = method.constrain(task, costs_of(logits, teacher, words), torch.full((GROUP,), float(LENGTH)))
        chosen = logits.log_softmax(-1)[words[:, :-1]].gather(2, words[:, 1:, None])[..., 0]
        direct = method.config.penalty * costs_of(logits, teacher, words) * method.violating
        loss = -(centre_by_group(rewards, GROUP)[:, None] * chosen).mean() + direct.mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    words = sample(logits.detach(), DRAWN, generator)
    held = mask_budget_violations(costs_of(logits.detach(), teacher, words), torch.full((DRAWN,), budget))
    within, task = 1.0 - held[:, -1], (words[:, 1:] == 0).float().mean(1)
    return {"earned": float((within * task).mean()), "within": float(within.mean()), "task": float(task.mean())}


def measure(seed: int) -> Pairs:
    hard, soft = ([trained(seed, budget, kind) for budget in BUDGETS] for kind in ("hard", "soft"))
    mean = lambda made, name: sum(one[name] for one in made) / len(made)  # noqa: E731
    return {name: (mean(hard, name), mean(soft, name)) for name in hard[0]}


CASE = Case(
    method="cmdp-distill",
    parent="dr-grpo",
    claim="With one penalty weight for all budgets, more is earned within the budget than under a soft penalty of the same weight.",
    quantities=(
        Quantity(
            "earned",
            "task reward of completions within the budget, mean over budgets of 0.25 to 4 nats",
            "higher",
            0.02,
            "two hundredths of the highest reward",
            by_construction="the method's reward takes away what is earned beyond the budget",
        ),
        Quantity(
            "within",
            "share of completions within the budget, mean over the same budgets",
            "higher",
            0.05,
            "five of a hundred completions",
            by_construction="the method's reward takes away what is earned beyond the budget",
        ),
        Quantity("task", "task reward of all completions, within the budget or not", "higher", 0.02, "two hundredths of the highest reward"),
    ),
    problem="bigram policy of 8 words whose task pays for leaving the teacher, Dr. GRPO with a soft divergence penalty as parent, 300 steps",
    measure=measure,
    launch={"base": "dr-grpo"},
    changed="measure, step size and number of steps: satisfaction alone favoured the soft penalty",
)
