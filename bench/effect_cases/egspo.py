"""Eight template positions the policy is nearly sure of, two decisions that alone earn the reward: do the templates stay where they were?"""

import torch

from bench.effect_cases import Case, Pairs, Quantity, paired
from trainers.maths.advantages import z_score
from trainers.methods.tokens.egspo import compute_attenuation, compute_entropy_threshold, gated_weights

TEMPLATES, DECISIONS, VOCABULARY, GROUP, PROMPTS, STEPS, LEARNING_RATE = 8, 2, 6, 8, 8, 300, 0.5
SURE = 3.5  # logit of the templates' own token against 0 of the others: a probability of 0.87


def trained(seed: int, quantile: float) -> dict[str, float]:
    """KL divergence (nats) of a template's next-token distribution at the end from that at the start, averaged over templates; rate of success."""
    generator = torch.Generator().manual_seed(seed)
    logits = torch.zeros(TEMPLATES + DECISIONS, VOCABULARY)
    logits[:TEMPLATES, 0] = SURE
    start = torch.log_softmax(logits, -1)
    for _ in range(STEPS):
        every = torch.log_softmax(logits, -1)  # (T, V)
        chosen = torch.multinomial(every.exp(), PROMPTS * GROUP, replacement=True, generator=generator).T  # (B, T)
        reward = (chosen[:, TEMPLATES:] == 0).all(1).float()
        advantages = z_score(reward, GROUP)[:, None]
        entropies = torch.special.entr(every.exp()).sum(-1).expand_as(chosen)
        own = every.expand(len(chosen), -1, -1).gather(2, chosen[..., None])[..., 0]
        tau = compute_entropy_threshold(entropies, torch.ones_like(own), quantile)
        weighted = advantages * gated_weights(entropies, tau, compute_attenuation(own))  # (B, T)
        ascent = torch.zeros_like(logits).scatter_add_(1, chosen.T, weighted.T) - every.exp() * weighted.sum(0)[:, None]
        logits = logits + LEARNING_RATE * ascent / len(chosen)
    end = torch.log_softmax(logits, -1)
    drift = float((start.exp() * (start - end)).sum(-1)[:TEMPLATES].mean())
    return {"drift": drift, "success": float(end[TEMPLATES:, 0].sum().exp())}


def measure(seed: int) -> Pairs:
    return paired(trained(seed, 0.8), trained(seed, 0.0))


CASE = Case(
    method="egspo",
    parent="grpo",
    claim="tokens the policy is sure of, which do not matter for the reward, drift less",
    quantities=(
        Quantity(
            "drift",
            "KL divergence of template tokens from the start after 300 updates (nats)",
            "lower",
            0.001,
            "half of what the templates drift without the method",
            by_construction="the method weakens the updates of exactly these tokens",
        ),
        Quantity("success", "probability of both decisions being right after 300 updates", "higher", 0.01, "one more of a hundred answers"),
    ),
    problem="synthetic sequences of 8 template and 2 decision tokens",
    measure=measure,
    launch={"base": "grpo"},
)
