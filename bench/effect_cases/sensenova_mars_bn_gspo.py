"""Easy and hard bandits in one batch: does the update keep its size while more and more of them are solved?"""

import torch

from bench.effect_cases import Case
from trainers.advantages import z_score
from trainers.methods.group.sensenova_mars_bn_gspo import batch_normalised

PROMPTS, ARMS, GROUP, STEPS, LEARNING_RATE, WINDOW = 64, 8, 8, 300, 4.0, 30


def measure(seed: int) -> tuple[float, float]:
    return kept_norm(seed, True), kept_norm(seed, False)


def kept_norm(seed: int, second: bool) -> float:
    """Mean norm of the last updates over that of the first."""
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
    return sum(norms[-WINDOW:]) / sum(norms[:WINDOW])


CASE = Case(
    method="sensenova-mars-bn-gspo",
    parent="grpo",
    claim="updates keep their size while prompts are solved one after the other; with the group's standardisation alone they shrink",
    quantity="norm of the last 30 updates over that of the first 30",
    direction="higher",
    problem="64 bandits of 8 arms, from hard to nearly solved, 300 updates",
    measure=measure,
    launch={"base": "grpo"},
)
