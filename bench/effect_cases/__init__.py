"""What each method claims, measured against its parent on a small problem: one file a method, each with a ``CASE``.

A published system that is no method here, but a tool for datasets or an ablation, has its case under its own id.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

Pairs = dict[str, tuple[float, float]]  # name of a quantity -> its value with the method and with its parent


@dataclass(frozen=True)
class Quantity:
    """One number that a case compares. ``least``: the smallest difference worth having, in the quantity's unit, and ``least_because`` why.

    ``by_construction``: how the method pays for the quantity, selects by it or sets it, so that its moving is no evidence for the claim; empty where
    it does none of these.
    """

    name: str  # as ``measure`` returns it
    words: str  # what is measured, with its unit
    direction: Literal["higher", "lower"]  # of the method against the parent, if the claim holds
    least: float
    least_because: str
    by_construction: str = ""


@dataclass(frozen=True)
class Case:
    """``measure(seed)`` returns every quantity with the method and without it (its parent, all else equal), from the same runs.

    ``launch``: arguments of ``tiny.train`` under which the method's step time is compared with its parent's (trainer, base, config, ...).
    """

    method: str
    parent: str
    claim: str  # a sentence: what should be seen
    quantities: tuple[Quantity, ...]  # the claim's own first
    problem: str  # on what: "100-arm bandit", "word problems, tiny policy, 40 steps"
    measure: Callable[[int], Pairs]
    seeds: int = 5
    launch: dict[str, Any] = field(default_factory=dict)
    changed: str = ""  # what was changed in the case after a first look at its results


def paired(own: dict[str, float], parent: dict[str, float]) -> Pairs:
    """The same quantities of two arms, side by side."""
    return {name: (own[name], parent[name]) for name in own}
