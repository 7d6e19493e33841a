"""A bandit whose pay drifts while DPO goes on: does a gated reference follow the best arm better than a fixed one?

Ten arms; every phase the pay moves and pairs of arms are labelled by it as Bradley and Terry have it, beta = 1,
so that the reference binds. The gate sees noisy pay of sampled arms, as a run's gate does.
"""

import torch
from torch.nn.functional import logsigmoid

from bench.effect_cases import Case, Pairs, Quantity
from trainers.methods.pairs.atlas_evodpo import best_candidate, may_promote_candidate, token_divergence

ARMS, PHASES, STEPS, PAIRS, BETA, RATE, GATE = 10, 20, 40, 64, 1.0, 0.1, 256
LEAST_GAIN, MOST_DIVERGENCE, WEIGHT = 0.01, 0.5, 0.0  # a phase here moves further than one of a language model


def trained(policy: torch.Tensor, reference: torch.Tensor, pay: torch.Tensor, generator: torch.Generator) -> list[torch.Tensor]:
    """Log-probabilities (ARMS,) in the middle and at the end of a phase."""
    logits, found = policy.clone().requires_grad_(), []
    optimiser = torch.optim.SGD([logits], lr=RATE * ARMS)
    for step in range(1, STEPS + 1):
        one, other = torch.randint(ARMS, (2, PAIRS), generator=generator)
        wins = torch.rand(PAIRS, generator=generator) < torch.sigmoid(pay[one] - pay[other])
        chosen, rejected = torch.where(wins, one, other), torch.where(wins, other, one)
        ratio = logits.log_softmax(0) - reference
        optimiser.zero_grad()
        (-logsigmoid(BETA * (ratio[chosen] - ratio[rejected]))).mean().backward()
        optimiser.step()
        if step in (STEPS // 2, STEPS):
            found.append(logits.detach().log_softmax(0))
    return found


def score(logprobs: torch.Tensor, pay: torch.Tensor, generator: torch.Generator) -> float:
    """Mean noisy pay of sampled arms."""
    arms = torch.multinomial(logprobs.exp(), GATE, replacement=True, generator=generator)
    return float((pay[arms] + 0.1 * torch.randn(GATE, generator=generator)).mean())


def mean_pay(seed: int, gated: bool) -> float:
    generator, drift = torch.Generator().manual_seed(seed), torch.Generator().manual_seed(1000 + seed)
    pay, policy = torch.randn(ARMS, generator=drift), torch.full((ARMS,), 1 / ARMS).log()
    reference, earned = policy, []
    for _ in range(PHASES):
        pay = 0.9 * pay + 0.45 * torch.randn(ARMS, generator=drift)
        candidates = trained(policy, reference, pay, generator)
        policy = candidates[-1]
        earned.append(float(policy.exp() @ pay))
        if gated:
            scores = [score(one, pay, generator) for one in candidates]
            far = [float(token_divergence(one, reference)) for one in candidates]
            chosen = best_candidate(scores, far, WEIGHT)
            if may_promote_candidate(scores[chosen] - score(reference, pay, generator), far[chosen], LEAST_GAIN, MOST_DIVERGENCE):
                reference = candidates[chosen]
    return sum(earned) / PHASES


def measure(seed: int) -> Pairs:
    return {"pay": (mean_pay(seed, True), mean_pay(seed, False))}


CASE = Case(
    method="atlas-evodpo",
    parent="dpo",
    claim="with a gated reference the policy earns more than with a fixed one while the pay drifts",
    quantities=(
        Quantity("pay", "expected pay at the end of a phase, mean of 20 phases", "higher", 0.05, "a twentieth of the deviation of an arm's pay"),
    ),
    problem="10-arm bandit with drifting pay",
    measure=measure,
    launch={"trainer": "dpo"},
    changed="beta, so that the reference binds",
)
