"""A toy problem where short and long answers can both be right: 8 kinds of answer, 4 lengths each right or wrong, one softmax policy over them.

Nothing but the learning rule decides about the length. It starts uniform, so at accuracy 1/2 and a mean length of 7.5.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from bench.effect_cases import Pairs, Quantity
from bench.equal_tokens import Curve, values_at_equal_tokens

LENGTHS = torch.tensor([2.0, 4, 8, 16]).repeat(2)  # (8,)
RIGHT = torch.tensor([1.0] * 4 + [0.0] * 4)  # (8,)
GROUP, LEARNING_RATE = 16, 0.2

ACCURACY = Quantity("accuracy", "share of right answers after 400 steps", "higher", 0.01, "one more of a hundred answers")
ACCURACY_AT_TOKENS = Quantity(
    "accuracy at tokens", "share of right answers after as many tokens written", "higher", 0.01, "one more of a hundred answers"
)


@dataclass
class Draw:
    """One group of answers, G of them, each a single token of the policy."""

    step: int  # from 1
    steps: int
    log_p: Tensor  # (G,) with gradient
    rewards: Tensor  # (G,)
    lengths: Tensor  # (G,)


@dataclass
class Learned:
    accuracy: float
    length: float
    curve: Curve = field(default_factory=list)  # accuracy by tokens written, step by step


def learn(seed: int, loss: Callable[[Draw], Tensor], steps: int = 400) -> Learned:
    """One group and one step of plain gradient descent at a time. ``loss`` (G,) or scalar, averaged."""
    generator = torch.Generator().manual_seed(seed)
    logits = torch.zeros(len(LENGTHS), requires_grad=True)
    curve, tokens = [(0.0, 0.5)], 0.0
    for step in range(1, steps + 1):
        chosen = torch.multinomial(torch.softmax(logits.detach(), 0), GROUP, replacement=True, generator=generator)
        log_p = torch.log_softmax(logits, 0)[chosen]
        (gradient,) = torch.autograd.grad(loss(Draw(step, steps, log_p, RIGHT[chosen], LENGTHS[chosen])).mean(), logits)
        logits = (logits - LEARNING_RATE * gradient).detach().requires_grad_()
        probabilities = torch.softmax(logits.detach(), 0)
        tokens += float(LENGTHS[chosen].sum())
        curve.append((tokens, float(probabilities @ RIGHT)))
    return Learned(curve[-1][1], float(probabilities @ LENGTHS), curve)


def compare(own: Learned, parent: Learned) -> Pairs:
    """Mean length, and what the policies have learnt at equal steps and at equal tokens."""
    return {
        "length": (own.length, parent.length),
        ACCURACY.name: (own.accuracy, parent.accuracy),
        ACCURACY_AT_TOKENS.name: values_at_equal_tokens(own.curve, parent.curve),
    }
