"""One decision among 8 likely tokens with a tail of 2,000 unlikely ones: how much does the gradient estimate vary from batch to batch?"""

import torch

from bench.effect_cases import Case
from trainers.advantages import z_score
from trainers.methods.tokens.rlpt import on_support, promising

HEAD, VOCABULARY, GROUP, PROMPTS, BATCHES = 8, 2000, 8, 8, 400
LIFT = 7.0  # of the head's logits over the tail's: the tail keeps about a fifth of the probability


def variance(seed: int, count: int) -> float:
    """Sum over the logits of the variance of the group-relative policy gradient, over batches from the same policy."""
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(VOCABULARY, generator=generator)
    logits[:HEAD] += LIFT
    kept = logits.topk(count).indices
    chances = torch.zeros(VOCABULARY).index_copy_(0, kept, torch.softmax(logits[kept], 0))
    gradients = []
    for _ in range(BATCHES):
        ids = torch.multinomial(chances, PROMPTS * GROUP, replacement=True, generator=generator)[:, None]  # (B, 1)
        advantages = z_score((ids[:, 0] == 0).float(), GROUP)
        own = logits.clone().requires_grad_()
        every = own.expand(len(ids), 1, -1)
        (advantages * on_support(every, ids, promising(every.detach(), ids, count))[:, 0]).mean().backward()
        gradients.append(own.grad)
    return float(torch.stack(gradients).var(0).sum())


def measure(seed: int) -> tuple[float, float]:
    return variance(seed, HEAD), variance(seed, VOCABULARY)


CASE = Case(
    method="rlpt",
    parent="grpo",
    claim="the gradient estimate varies less from batch to batch when the tail of the vocabulary is left out",
    quantity="variance of the gradient on the logits, summed",
    direction="lower",
    problem="one decision, 8 likely tokens and 1,992 unlikely ones",
    measure=measure,
    launch={"base": "grpo"},
)
