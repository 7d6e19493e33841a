"""Easy and hard bandits in one batch: does the update keep its size while more and more of them are solved?"""

import torch

from bench.effect_cases import Case, Pairs, Quantity, paired
from trainers.maths.advantages import z_score
from trainers.methods.group.sensenova_mars_bn_gspo import batch_normalised

PROMPTS, ARMS, GROUP, STEPS, LEARNING_RATE, WINDOW = 64, 8, 8, 300, 4.0, 30


def measure(seed: int) -> Pairs:
    return paired(trained(seed, True), trained(seed, False))


def trained(seed: int, second: bool) -> dict[str, float]:
    """Mean norm of the last updates over that of the first, and how likely the right arm is in the end."""
    generator = torch.Generator().manual_seed(seed)
    logits = torch.zeros(PROMPTS, ARMS)
    logits[:, 0] = torch.linspace(-4, 4, PROMPTS)  # of the right arm
    norms = []
    for _ in range(STEPS):
        probabilities = torch.softmax(logits, 1)
        chosen = torch.multinomial(probabilities, GROUP, replacement=True, generator=generator)  # (PROMPTS, GROUP)
        advantage = z_score((chosen == 0).float().flatten(), GROUP, epsilon=1e-6)
        advantage = (batch_normalised(advantage) if second else advantage).view(PROMPTS, GROUP)
        gradient = torch.zeros(PROMPTS, ARMS).scatter_add_(1, chosen, advantage) - probabilities * advantage.sum(1, keepdim=True)
        gradient = gradient / (PROMPTS * GROUP)
        norms.append(float(gradient.norm()))
        logits = logits + LEARNING_RATE * gradient
    return {"norm": sum(norms[-WINDOW:]) / sum(norms[:WINDOW]), "accuracy": float(torch.softmax(logits, 1)[:, 0].mean())}


CASE = Case(
    method="sensenova-mars-bn-gspo",
    parent="grpo",
    claim="updates keep their size while prompts are solved one after the other; with the group's standardisation alone they shrink",
    quantities=(
        Quantity(
            "norm",
            "norm of the last 30 updates over that of the first 30",
            "higher",
            0.05,
            "a twentieth of the first updates' size",
            by_construction="the method sets the size of the advantages",
        ),
        Quantity("accuracy", "mean probability of the right arm after 300 updates", "higher", 0.01, "one more of a hundred answers"),
    ),
    problem="64 bandits of 8 arms, from hard to nearly solved, 300 updates",
    measure=measure,
    launch={"base": "grpo"},
)
