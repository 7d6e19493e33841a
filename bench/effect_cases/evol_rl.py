"""Sums without labels, each answered in several ways: majority voting alone, or with novelty."""

import torch

from bench.effect_cases import Case, Pairs, Quantity, paired
from trainers.maths.advantages import z_score
from trainers.maths.similarity import compute_cosines, ngram_vectors
from trainers.methods.group.evol_rl import compute_novelty_rewards, find_majority_answer

ANSWERS = ("11", "12", "10")  # the first is right
WAYS = ("3+3=6 6+5=11", "5+3=8 8+3=11", "3+5=8 8+3=11", "6+5=11", "twelve less one", "two fives and one")
PROMPTS, GROUP, STEPS, LEARNING_RATE = 16, 8, 300, 2.0


def measure(seed: int) -> Pairs:
    return paired(trained(seed, 0.5), trained(seed, 0.0))


def trained(seed: int, band: float) -> dict[str, float]:
    """Mean entropy (nats) of the trained policies over answers and ways of working, and their probability of the right answer."""
    generator = torch.Generator().manual_seed(seed)
    alike = compute_cosines(ngram_vectors(WAYS))
    logits = 0.5 * torch.randn(PROMPTS, len(ANSWERS), len(WAYS), generator=generator)
    logits[:, 0] += 1.0
    logits = logits.flatten(1)
    for _ in range(STEPS):
        probabilities = torch.softmax(logits, 1)
        chosen = torch.multinomial(probabilities, GROUP, replacement=True, generator=generator)  # (PROMPTS, GROUP)
        rewards = torch.stack([reward_of(row, alike, band) for row in chosen])
        advantage = z_score(rewards.flatten(), GROUP).view(PROMPTS, GROUP)
        gradient = torch.zeros_like(logits).scatter_add_(1, chosen, advantage) - probabilities * advantage.sum(1, keepdim=True)
        logits = logits + LEARNING_RATE * gradient / (PROMPTS * GROUP)
    probabilities = torch.softmax(logits, 1)
    right = probabilities.view(PROMPTS, len(ANSWERS), len(WAYS))[:, 0].sum(1)
    return {"entropy": float(torch.special.entr(probabilities).sum(1).mean()), "accuracy": float(right.mean())}


def reward_of(chosen: torch.Tensor, alike: torch.Tensor, band: float) -> torch.Tensor:
    """(G,) choices of one group -> (G,)."""
    answers = [ANSWERS[choice // len(WAYS)] for choice in chosen.tolist()]
    elected, ways = find_majority_answer(answers), chosen % len(WAYS)
    verdict = torch.tensor([answer == elected for answer in answers])
    return compute_novelty_rewards(alike[ways][:, ways], verdict, torch.ones(len(answers), dtype=torch.bool), band)


CASE = Case(
    method="evol-rl",
    parent="grpo",
    claim="the policy keeps several ways of working, where majority voting alone (band 0) settles on fewer",
    quantities=(
        Quantity(
            "entropy",
            "entropy over answers and ways of working (nats)",
            "higher",
            0.1,
            "a tenth of a nat, about a tenth more ways",
            by_construction="the reward pays for novelty",
        ),
        Quantity("accuracy", "probability of a right answer, which nothing in training knows", "higher", 0.01, "one more of a hundred answers"),
    ),
    problem="16 sums without labels, 3 answers x 6 ways of working, 300 updates",
    measure=measure,
    launch={"base": "grpo"},
)
