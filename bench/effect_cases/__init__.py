"""What each method claims, measured against its parent on a small problem: one file a method, each with a ``CASE``."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal


@dataclass(frozen=True)
class Case:
    """``measure(seed)`` returns the quantity with the method and without it (its parent, all else equal).

    ``launch``: arguments of ``tiny.train`` under which the method's step time is compared with its parent's (trainer, base, config, ...).
    """

    method: str
    parent: str
    claim: str  # a sentence: what should be seen
    quantity: str  # what is measured, with its unit
    direction: Literal["higher", "lower"]  # of the method against the parent, if the claim holds
    problem: str  # on what: "100-arm bandit", "word problems, tiny policy, 40 steps"
    measure: Callable[[int], tuple[float, float]]
    seeds: int = 5
    launch: dict[str, Any] = field(default_factory=dict)
