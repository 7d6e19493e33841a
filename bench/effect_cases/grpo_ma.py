"""GRPO-MA: how much a thought's advantage depends on the luck of its answers. Four thoughts of fixed worth, answers drawn again and again."""

import torch

from bench.effect_cases import Case
from trainers.methods.group.grpo_ma import segment_advantages

THOUGHTS, DRAWS = 4, 4000


def variance(seed: int, answers: int) -> float:
    """Mean over the thoughts of the variance of their advantage."""
    generator = torch.Generator().manual_seed(seed)
    worth = torch.rand(THOUGHTS, generator=generator)  # probability that an answer to the thought is right
    rewards = (torch.rand(DRAWS, THOUGHTS, answers, generator=generator) < worth[:, None]).float()
    advantages, _ = segment_advantages(rewards.flatten(), THOUGHTS * answers, answers)
    return float(advantages.view(DRAWS, THOUGHTS, answers)[..., 0].var(0).mean())


def measure(seed: int) -> tuple[float, float]:
    return variance(seed, 4), variance(seed, 1)


CASE = Case(
    method="grpo-ma",
    parent="grpo",
    claim="with 4 answers to a thought its advantage varies less than with 1",
    quantity="variance of a thought's advantage over redrawn answers",
    direction="lower",
    problem="4 thoughts of fixed random worth, 4,000 redraws",
    measure=measure,
    launch={"base": "grpo"},
)
