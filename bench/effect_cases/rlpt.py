"""One decision among 8 likely tokens with a tail of 2,000 unlikely ones: how much does the gradient estimate vary from batch to batch?"""

import torch

from bench.effect_cases import Case, Pairs, Quantity
from trainers.maths.advantages import z_score
from trainers.methods.tokens.rlpt import on_support, select_promising_tokens

HEAD, VOCABULARY, GROUP, PROMPTS, BATCHES, STEPS, LEARNING_RATE = 8, 2000, 8, 8, 400, 200, 1.0
LIFT = 7.0  # of the head's logits over the tail's: the tail keeps about a fifth of the probability


def start(generator: torch.Generator) -> torch.Tensor:
    logits = torch.randn(VOCABULARY, generator=generator)
    logits[:HEAD] += LIFT
    return logits


def estimate(logits: torch.Tensor, count: int, generator: torch.Generator) -> torch.Tensor:
    """(VOCABULARY,) the group-relative policy gradient of one batch sampled from the ``count`` likeliest tokens."""
    kept = logits.topk(count).indices
    chances = torch.zeros(VOCABULARY).index_copy_(0, kept, torch.softmax(logits[kept], 0))
    ids = torch.multinomial(chances, PROMPTS * GROUP, replacement=True, generator=generator)[:, None]  # (B, 1)
    advantages = z_score((ids[:, 0] == 0).float(), GROUP)
    own = logits.clone().requires_grad_()
    every = own.expand(len(ids), 1, -1)
    (gradient,) = torch.autograd.grad((advantages * on_support(every, ids, select_promising_tokens(every.detach(), ids, count))[:, 0]).mean(), own)
    return gradient


def variance(seed: int, count: int) -> float:
    """Sum over the logits of the variance of the gradient, over batches from the same policy."""
    generator = torch.Generator().manual_seed(seed)
    logits = start(generator)
    return float(torch.stack([estimate(logits, count, generator) for _ in range(BATCHES)]).var(0).sum())


def accuracy(seed: int, count: int) -> float:
    """Probability of the rewarded token when the trained policy is sampled from the whole vocabulary."""
    generator = torch.Generator().manual_seed(seed)
    logits = start(generator)
    for _ in range(STEPS):
        logits = logits + LEARNING_RATE * estimate(logits, count, generator)
    return float(torch.softmax(logits, 0)[0])


def measure(seed: int) -> Pairs:
    return {name: (taken(seed, HEAD), taken(seed, VOCABULARY)) for name, taken in (("variance", variance), ("accuracy", accuracy))}


CASE = Case(
    method="rlpt",
    parent="grpo",
    claim="the gradient estimate varies less from batch to batch when the tail of the vocabulary is left out",
    quantities=(
        Quantity("variance", "variance of the gradient on the logits, summed", "lower", 0.0005, "a seventh of the variance without the method"),
        Quantity("accuracy", "probability of the rewarded token among all after 200 updates", "higher", 0.01, "one more of a hundred answers"),
    ),
    problem="one decision, 8 likely tokens and 1,992 unlikely ones",
    measure=measure,
    launch={"base": "grpo"},
)
