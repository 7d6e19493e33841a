"""Closed-book questions, half of them known to the policy and half not to be known: does it stop inventing answers to the latter?"""

import torch

from bench.effect_cases import Case, Pairs, Quantity, paired
from trainers.maths.advantages import z_score
from trainers.methods.group.faithrl import compute_geometric_rewards

QUESTIONS, ANSWERS, GROUP, BATCH, STEPS, LEARNING_RATE = 100, 4, 8, 32, 600, 4.0
SILENT = ANSWERS  # the choice of not answering


def measure(seed: int) -> Pairs:
    return paired(trained(seed, True), trained(seed, False))


def trained(seed: int, method: bool) -> dict[str, float]:
    """Shares of right and of wrong answers of the trained policy. The answer to an unknown question changes every time: nobody can learn it."""
    generator = torch.Generator().manual_seed(seed)
    known = torch.arange(QUESTIONS) < QUESTIONS // 2
    logits = torch.zeros(QUESTIONS, ANSWERS + 1)
    logits[known, 0], logits[:, SILENT] = 2.5, -1.0
    x0, y0 = rates(logits, known)
    for _ in range(STEPS):
        asked = torch.randperm(QUESTIONS, generator=generator)[:BATCH]
        probabilities = torch.softmax(logits[asked], 1)
        chosen = torch.multinomial(probabilities, GROUP, replacement=True, generator=generator)  # (BATCH, GROUP)
        truth = torch.where(known[asked], 0, torch.randint(ANSWERS, (BATCH,), generator=generator))[:, None]
        hit, silent = (chosen == truth).flatten(), (chosen == SILENT).flatten()
        advantage = z_score(compute_geometric_rewards(hit, silent, x0, y0) if method else hit.float(), GROUP).view(BATCH, GROUP)
        gradient = torch.zeros_like(probabilities).scatter_add_(1, chosen, advantage) - probabilities * advantage.sum(1, keepdim=True)
        logits[asked] += LEARNING_RATE * gradient / (BATCH * GROUP)
    right, wrong = rates(logits, known)
    return {"wrong": wrong, "right": right}


def rates(logits: torch.Tensor, known: torch.Tensor) -> tuple[float, float]:
    """Expected shares of right and of wrong answers."""
    probabilities = torch.softmax(logits, 1)
    answered = 1 - probabilities[:, SILENT]
    right = torch.where(known, probabilities[:, 0], answered / ANSWERS)
    return float(right.mean()), float((answered - right).mean())


CASE = Case(
    method="faithrl",
    parent="grpo",
    claim="invented answers become rare, where a reward of 1 for right answers alone drives out not answering",
    quantities=(
        Quantity(
            "wrong", "share of wrong answers", "lower", 0.01, "one more of a hundred answers", by_construction="the reward prices wrong answers"
        ),
        Quantity("right", "share of right answers", "higher", 0.01, "one more of a hundred answers"),
    ),
    problem="100 closed-book questions, half of them unknowable, 600 updates; the reward alone, no steps",
    measure=measure,
    launch={"base": "grpo"},
)
