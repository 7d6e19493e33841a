"""C2GSPG where answers cannot be known for sure: 8 kinds of question, 5 answers, and the right one is the usual one only some of the time.

A policy that is rewarded for being right ends up sure of the usual answer; a calibrated one is as sure as it is right.
"""

import torch
from torch import Tensor

from bench.effect_cases import Case, Pairs, Quantity, paired
from trainers.maths.advantages import centre_by_group, z_score
from trainers.methods.group.c2gspg import calibrated_advantages, calibration_error, cross_entropy

KINDS, ANSWERS, GROUP, STEPS, LEARNING_RATE, BETA = 8, 5, 16, 600, 0.5, 0.01
USUAL = torch.linspace(0.3, 0.95, KINDS)  # how often answer 0 is right
LARGEST = -1e-6


def right_answers(generator: torch.Generator, count: int) -> Tensor:
    """(KINDS, count): the right answer of ``count`` questions of each kind."""
    usual = torch.rand(KINDS, count, generator=generator) < USUAL[:, None]
    other = torch.randint(1, ANSWERS, (KINDS, count), generator=generator)
    return torch.where(usual, torch.zeros_like(other), other)


def trained(seed: int, calibrated: bool) -> dict[str, float]:
    """Expected calibration error and share of right ones of 2,000 answers to new questions of each kind."""
    generator = torch.Generator().manual_seed(seed)
    logits = torch.zeros(KINDS, ANSWERS, requires_grad=True)
    for _ in range(STEPS):
        chosen = torch.multinomial(torch.softmax(logits.detach(), 1), GROUP, replacement=True, generator=generator)  # (KINDS, G)
        rewards = (chosen == right_answers(generator, 1)).float().flatten()  # one question a group
        log_c = torch.log_softmax(logits, 1).gather(1, chosen).flatten().clamp(max=LARGEST)
        if calibrated:
            gain = calibrated_advantages(centre_by_group(rewards, GROUP), log_c.detach()) * log_c + BETA * cross_entropy(log_c, rewards)
        else:
            gain = z_score(rewards, GROUP) * log_c
        (gradient,) = torch.autograd.grad(-gain.mean() * KINDS, logits)
        logits = (logits - LEARNING_RATE * gradient / max(1.0, float(gradient.norm()))).detach().requires_grad_()
    probabilities = torch.softmax(logits.detach(), 1)
    chosen = torch.multinomial(probabilities, 2000, replacement=True, generator=generator)
    right = (chosen == right_answers(generator, 2000)).float()
    error = calibration_error(probabilities.gather(1, chosen).flatten(), right.flatten())
    return {"calibration error": float(error), "accuracy": float(right.mean())}


def measure(seed: int) -> Pairs:
    return paired(trained(seed, True), trained(seed, False))


CASE = Case(
    method="c2gspg",
    parent="grpo",
    claim="the policy is better calibrated",
    quantities=(
        Quantity(
            "calibration error",
            "expected calibration error after 600 steps",
            "lower",
            0.02,
            "two hundredths of confidence, which nobody would notice below",
        ),
        Quantity("accuracy", "share of right answers to 2,000 new questions of each kind", "higher", 0.01, "one more of a hundred answers"),
    ),
    problem="8 kinds of question with uncertain answers",
    measure=measure,
    launch={"base": "grpo"},
)
