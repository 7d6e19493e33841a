"""A bandit whose answers without a search earn 0.2 on average and those with two 0.8: does the policy still learn which of the former are better?"""

import torch

from bench.effect_cases import Case
from trainers.methods.group.stratified_grpo import Config, blended

KINDS, ARMS, GROUP, GROUPS, STEPS, LEARNING_RATE, NOISE = 2, 10, 8, 8, 400, 1.0, 0.1


def measure(seed: int) -> tuple[float, float]:
    return quality_without_search(seed, Config().alpha), quality_without_search(seed, 0.0)


def quality_without_search(seed: int, alpha: float) -> float:
    """Expected reward of the trained policy given that it does not search."""
    generator = torch.Generator().manual_seed(seed)
    worth = torch.tensor([0.2, 0.8])[:, None] + torch.linspace(-0.15, 0.15, ARMS)  # (2, ARMS)
    flat, logits = worth.flatten(), torch.zeros(KINDS * ARMS)
    for _ in range(STEPS):
        probabilities = torch.softmax(logits, 0)
        chosen = torch.multinomial(probabilities, GROUP * GROUPS, replacement=True, generator=generator)
        rewards = flat[chosen] + NOISE * torch.randn(len(chosen), generator=generator)
        advantage = blended(rewards, chosen // ARMS, GROUP, alpha, 1e-8, 0)
        gradient = torch.zeros(KINDS * ARMS).index_add_(0, chosen, advantage) - probabilities * advantage.sum()
        logits = logits + LEARNING_RATE * gradient / len(chosen)
    return float((torch.softmax(logits[:ARMS], 0) * worth[0]).sum())


CASE = Case(
    method="stratified-grpo",
    parent="grpo",
    claim="answers without a search go on learning from one another, although the group's mean pushes all of them down",
    quantity="expected reward among answers without a search (at best 0.35, at first 0.2)",
    direction="higher",
    problem="bandit of 2 x 10 noisy arms, 400 updates",
    measure=measure,
    launch={"base": "grpo"},
)
