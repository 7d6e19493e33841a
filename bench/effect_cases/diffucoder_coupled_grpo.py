"""Coupled GRPO on word problems: the built-in masked policy trained with the coupled estimate, against one random mask."""

import torch

from bench.effect_cases import Case, Pairs, Quantity, tiny
from bench.effect_cases.tiny import Trained
from trainers.masked.likelihood import couple_logprobs, draw_coupled_mask, draw_share, weigh_single_mask

STEPS, DRAWS, TOKENS, TEMPERATURE = 40, 500, 40, 0.5


def trained(seed: int, estimate: str) -> Trained:
    data = tiny.spec_of(seed, steps=STEPS, heldout=256, training__temperature=TEMPERATURE)
    data["evaluation"]["temperature"] = TEMPERATURE
    return tiny.cached(data | {"base": {"name": "diffucoder-coupled-grpo", "config": {"estimate": estimate, "diffusion_steps": TOKENS}}})


def estimate_variances(seed: int) -> tuple[float, float]:
    """Mean variance over masks of a token's estimate, coupled and by one mask, for log-probabilities that do not depend on the mask."""
    generator = torch.Generator().manual_seed(seed)
    logprobs = -2 * torch.rand(1, TOKENS, generator=generator)
    coupled, single = [], []
    for _ in range(DRAWS):
        share = draw_share(generator)
        mask = draw_coupled_mask(logprobs, share, generator)
        coupled.append(couple_logprobs(logprobs, logprobs, logprobs, mask, share))
        single.append(weigh_single_mask(logprobs, mask, share))
    return float(torch.cat(coupled).var(0).mean()), float(torch.cat(single).var(0).mean())


def measure(seed: int) -> Pairs:
    return {"variance": estimate_variances(seed)} | tiny.budgeted_accuracies(trained(seed, "coupled"), trained(seed, "single"))


CASE = Case(
    method="diffucoder-coupled-grpo",
    parent="grpo",
    claim="the coupled estimate of a token's log-probability varies less over masks than that of one random mask, and trains better",
    quantities=(
        Quantity(
            "variance",
            "variance of a token's estimate over masks (nats squared)",
            "lower",
            0.1,
            "a tenth of the variance of one mask",
            by_construction="the pair of masks scores each token twice, and once for certain",
        ),
        tiny.ACCURACY,
        tiny.ACCURACY_AT_TOKENS,
    ),
    problem="word problems, built-in masked policy (a token a step, temperature 0.5), 40 steps; the parent is the same with one random mask",
    measure=measure,
    seeds=3,
    launch={"base": "diffucoder-coupled-grpo"},
)
