"""Two conflicting objectives for one matrix: the second one costs less of the first where its gradients stay out of the first one's directions.

Answers are vectors; a prompt x prefers the one with the larger a . W x. Each objective is about answers that differ in a few directions of its
own, and in some of both, where the two want the opposite: the setting in which the first update's directions say what the first objective needs.
"""

import torch
from torch.nn.functional import logsigmoid

from bench.effect_cases import Case, Pairs, Quantity
from trainers.methods.pairs.orthalign import project_gradient, protected_basis

SIZE, RANK, SHARED, PAIRS, STEPS, RATE, NULL_RATIO = 32, 4, 2, 512, 200, 0.01, 0.8
NEW = 4096  # pairs of each objective that nothing was trained on


def pairs(truth: torch.Tensor, directions: torch.Tensor, generator: torch.Generator, count: int = PAIRS) -> tuple[torch.Tensor, torch.Tensor]:
    """Prompts (K, SIZE) and differences (K, SIZE) of the better and the worse answer, which lie in the ``directions`` (SIZE, r)."""
    prompts = torch.randn(count, SIZE, generator=generator)
    differences = torch.randn(count, directions.shape[1], generator=generator) @ directions.T
    return prompts, differences * torch.sign((differences * (prompts @ truth.T)).sum(1, keepdim=True))


def trained(start: torch.Tensor, data: tuple[torch.Tensor, torch.Tensor], basis: torch.Tensor | None) -> torch.Tensor:
    """DPO from ``start`` (SIZE, SIZE), its gradients kept out of ``basis``."""
    weight = start.clone().requires_grad_()
    optimiser = torch.optim.Adam([weight], lr=RATE)
    for _ in range(STEPS):
        optimiser.zero_grad()
        gap = (data[1] * (data[0] @ (weight - start).T)).sum(1)
        (-logsigmoid(0.1 * gap)).mean().backward()
        if basis is not None:
            weight.grad = project_gradient(weight.grad, basis)
        optimiser.step()
    return weight.detach()


def accuracy(weight: torch.Tensor, data: tuple[torch.Tensor, torch.Tensor]) -> float:
    return float(((data[1] * (data[0] @ weight.T)).sum(1) > 0).float().mean())


def measure(seed: int) -> Pairs:
    generator = torch.Generator().manual_seed(seed)
    left, right = torch.linalg.qr(torch.randn(2, SIZE, 2 * RANK, generator=generator))[0]
    own, others = left[:, :RANK], left[:, RANK - SHARED : 2 * RANK - SHARED]
    one = own @ right[:, :RANK].T
    both, rest = right[:, RANK - SHARED : RANK].T, right[:, RANK : 2 * RANK - SHARED].T
    other = -others[:, :SHARED] @ both + others[:, SHARED:] @ rest
    first, second = pairs(one, own, generator), pairs(other, others, generator)
    start = trained(torch.zeros(SIZE, SIZE), first, None)
    before = accuracy(start, first)
    with_, without = (trained(start, second, basis) for basis in (protected_basis(start, NULL_RATIO), None))
    unseen = pairs(one, own, generator, NEW), pairs(other, others, generator, NEW)
    both = [sum(accuracy(weight, data) for data in unseen) / 2 for weight in (with_, without)]
    return {"drop": (before - accuracy(with_, first), before - accuracy(without, first)), "both": (both[0], both[1])}


CASE = Case(
    method="orthalign",
    parent="dpo",
    claim="a second, conflicting objective costs less of the first one's pair accuracy",
    quantities=(
        Quantity(
            "drop",
            "drop of the first objective's pair accuracy (share of 512 pairs)",
            "lower",
            0.02,
            "two more of a hundred pairs",
            by_construction="the gradients are kept out of the directions in which the first objective was learnt",
        ),
        Quantity("both", "accuracy on 4,096 new pairs, mean of both objectives", "higher", 0.02, "two more of a hundred pairs"),
    ),
    problem="two conflicting sets of pairs, one 32 x 32 matrix, Adam",
    measure=measure,
    changed="answers lay in all directions at first",
)
