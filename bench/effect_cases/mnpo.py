"""Rock, paper, scissors with softmax policies: against its own recent past an iterated policy stays nearer to even than against its last self alone.

Every iteration regresses h on all pairs of actions, weighted as the current policy samples them, winners by the rule of the game. rho = 0:
nothing pulls back to the reference, so that the opponents alone decide whether the policy circles.
"""

import torch

from bench.effect_cases import Case, Pairs, Quantity
from trainers.methods.pairs.mnpo import compute_opponent_margin, squared_distance

ITERATIONS, UPDATES, RATE, RHO, ETA = 60, 50, 0.05, 0.0, 1.0
WINS = torch.tensor([[0.5, 0.0, 1.0], [1.0, 0.5, 0.0], [0.0, 1.0, 0.5]])  # of the row against the column


def mean_gap(seed: int, history: int) -> float:
    """What the best answer to the policy wins beyond a half, over the last half of the iterations."""
    start = torch.randn(3, generator=torch.Generator().manual_seed(seed))
    past, gaps = [start.log_softmax(0)], []
    winners, losers = zip(*[(row, column) for row in range(3) for column in range(3) if WINS[row, column] == 1], strict=True)
    difference = lambda logprobs: logprobs[list(winners)] - logprobs[list(losers)]  # noqa: E731
    for _ in range(ITERATIONS):
        opponents = past[-history:]
        weights = torch.full((len(opponents),), 1 / len(opponents))
        against = compute_opponent_margin(difference(past[0]), torch.stack([difference(one) for one in opponents]), weights, RHO)
        sampled = past[-1].exp()
        share = sampled[list(winners)] * sampled[list(losers)]
        logits = past[-1].clone().requires_grad_()
        for _ in range(UPDATES):
            loss = (share * squared_distance(difference(logits.log_softmax(0)), against, ETA)).sum()
            (gradient,) = torch.autograd.grad(loss, logits)
            logits = (logits - RATE * gradient / share.sum()).detach().requires_grad_()
        past.append(logits.detach().log_softmax(0))
        gaps.append(float((WINS @ past[-1].exp()).max() - 0.5))
    return sum(gaps[ITERATIONS // 2 :]) / (ITERATIONS - ITERATIONS // 2)


def measure(seed: int) -> Pairs:
    return {"exploitability": (mean_gap(seed, 3), mean_gap(seed, 1))}


CASE = Case(
    method="mnpo",
    parent="one opponent (INPO)",
    claim="with three past policies as opponents the policy is less exploitable than with its last one alone",
    quantities=(
        Quantity(
            "exploitability",
            "win rate of the best answer above one half, mean of the last 30 of 60 iterations",
            "lower",
            0.02,
            "two more of a hundred games",
        ),
    ),
    problem="rock, paper, scissors; softmax policies",
    measure=measure,
    launch={"trainer": "dpo", "base": "ipo"},
    changed="rho, because 0.1 pulled both sides back to the start",
)
