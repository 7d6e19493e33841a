"""The variants of a recipe: all its methods, all but one, none. Pure: specs in, specs out."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

from lab.training.runs.stack import name_of, stack_of

Spec = dict[str, Any]
FULL, BASE = "full", "base"


@dataclass(frozen=True)
class Variant:
    """``removed`` are the methods of the full stack that it does without."""

    name: str
    removed: tuple[str, ...]

    def spec(self, full: Spec, seed: int) -> Spec:
        """The full stack's spec without the removed methods, with the seed ``seed`` places after its own."""
        kept = [choice for choice in full.get("methods", ()) if name_of(choice) not in self.removed]
        return {**copy.deepcopy({key: value for key, value in full.items() if key != "methods"}), "methods": kept, "seed": first_seed(full) + seed}


def first_seed(spec: Spec) -> int:
    seed = spec.get("seed", 0)
    return seed if isinstance(seed, int) else 0


def variants_of(spec: Spec) -> list[Variant]:
    """The full stack, the stack without each method, the base alone; of one method the last two are the same. Nothing without methods."""
    methods = stack_of(spec).methods
    if not methods:
        return []
    without = [Variant(without_name(method), (method,)) for method in methods] if len(methods) > 1 else []
    return [Variant(FULL, ()), *without, Variant(BASE, methods)]


def without_name(method: str) -> str:
    return f"without {method}"


def variant_without(spec: Spec, method: str) -> str:
    """The name of the variant that lacks ``method`` and nothing else."""
    return BASE if len(stack_of(spec).methods) == 1 else without_name(method)
