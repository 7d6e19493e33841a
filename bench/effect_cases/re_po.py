"""A separable synthetic preference set with 30 % of its labels flipped: 400 pairs in 20 dimensions, a linear log-ratio as the policy."""

import torch
from torch.nn.functional import logsigmoid

from bench.effect_cases import Case, Pairs, Quantity
from trainers.methods.pairs.re_po import compute_label_posterior, soft_loss

PAIRS, DIMENSIONS, STEPS, RATE, FLIPPED = 400, 20, 600, 0.05, 0.3


def accuracy(seed: int, robust: bool) -> float:
    """Share of fresh clean pairs that are ordered right after training on noisy ones."""
    generator = torch.Generator().manual_seed(seed)
    truth = torch.randn(DIMENSIONS, generator=generator)
    features = torch.randn(PAIRS, DIMENSIONS, generator=generator)  # of the chosen answer minus those of the rejected one
    features = features * torch.sign(features @ truth)[:, None]
    flipped = torch.rand(PAIRS, generator=generator) < FLIPPED
    features = torch.where(flipped[:, None], -features, features)
    weights = torch.zeros(DIMENSIONS, requires_grad=True)
    optimiser, reliability = torch.optim.Adam([weights], lr=RATE), 0.9
    for _ in range(STEPS):
        margin = features @ weights
        if robust:
            weight = compute_label_posterior(torch.sigmoid(margin.detach()), torch.full_like(margin, reliability))
            reliability = 0.9 * reliability + 0.1 * float(weight.mean())
            loss = soft_loss(margin, weight).mean()
        else:
            loss = -logsigmoid(margin).mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    fresh = torch.randn(4000, DIMENSIONS, generator=generator)
    return float((torch.sign(fresh @ weights.detach()) == torch.sign(fresh @ truth)).float().mean())


def measure(seed: int) -> Pairs:
    return {"accuracy": (accuracy(seed, True), accuracy(seed, False))}


CASE = Case(
    method="re-po",
    parent="dpo",
    claim="with 30 % of the labels flipped it orders clean pairs better than DPO",
    quantities=(Quantity("accuracy", "accuracy on 4,000 clean pairs", "higher", 0.01, "one more of a hundred pairs"),),
    problem="separable synthetic pairs",
    measure=measure,
    launch={"trainer": "dpo", "training__sampled_prompts": 128},
)
