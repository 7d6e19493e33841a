"""The factors of an experiment grid and the cells they make. Pure: specs in, specs out.

A factor is a list of levels. A level changes fields of the recipe by their dotted paths, as they stand in its spec: ``training.learning_rate``,
``task.difficulty``, ``task.options.junk``, ``base.name``, ``methods``, ``methods.rs-grpo.config.weight`` (a method by its name or its place). A level
with a metric changes nothing: it says where the same runs are read, so that one run fills a row of "trained on × measured on".
"""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lab.training.ablations.variants import first_seed
from lab.training.runs.stack import name_of
from trainers.contract.hyperparameters import TRAINERS

Spec = dict[str, Any]
TRAINER = "training.trainer"
MAX_STEPS = "training.max_steps"
JOINED = " · "  # between the levels in the name of a cell


@dataclass(frozen=True)
class Level:
    """``changes``: (dotted path, value). ``metric``: what is read of the runs in place of the quantity on the page; such a level has no changes."""

    name: str
    changes: tuple[tuple[str, Any], ...] = ()
    metric: str = ""

    def as_json(self) -> dict[str, Any]:
        return {"name": self.name, **({"metric": self.metric} if self.metric else {"changes": dict(self.changes)})}


@dataclass(frozen=True)
class Factor:
    name: str
    levels: tuple[Level, ...]

    @property
    def is_reading(self) -> bool:
        """Its levels are read of the same runs."""
        return bool(self.levels) and all(level.metric for level in self.levels)

    @property
    def level_names(self) -> list[str]:
        return [level.name for level in self.levels]

    def as_json(self) -> dict[str, Any]:
        return {"name": self.name, "levels": [level.as_json() for level in self.levels]}


def read_factors(stored: Iterable[Mapping[str, Any]]) -> list[Factor]:
    """The factors of a stored grid."""
    return [Factor(one["name"], tuple(read_level(level) for level in one["levels"])) for one in stored]


def read_level(stored: Mapping[str, Any]) -> Level:
    return Level(stored["name"], tuple(stored.get("changes", {}).items()), stored.get("metric", ""))


@dataclass(frozen=True)
class Cell:
    """One combination of the levels that change runs; a variant of the recipe, as those of an ablation. ``steps``: of a budget in steps, else 0."""

    levels: tuple[Level, ...]
    steps: int = 0

    @property
    def name(self) -> str:
        return JOINED.join(level.name for level in self.levels)

    def spec(self, full: Spec, seed: int) -> Spec:
        """The recipe with the changes of every level, and the seed ``seed`` places after its own. Raises FieldPathError."""
        changes = [change for level in self.levels for change in level.changes]
        if self.steps:
            changes.append((MAX_STEPS, self.steps))
        return {**apply_changes(full, changes), "seed": first_seed(full) + seed}


def list_cells(factors: Sequence[Factor], steps: int = 0) -> list[Cell]:
    """Every combination, the last factor fastest; nothing where a factor has no levels."""
    changing = [factor.levels for factor in factors if not factor.is_reading]
    return [Cell(levels, steps) for levels in itertools.product(*changing)] if changing else []


def count_cells(factors: Sequence[Factor]) -> int:
    """0 where no factor changes the runs."""
    changing = [len(factor.levels) for factor in factors if not factor.is_reading]
    return math.prod(changing) if changing else 0


class FieldPathError(LookupError):
    """A path that leads to no field of the recipe; the message says where it ends."""

    def __init__(self, path: str, message: str) -> None:
        super().__init__(message)
        self.path, self.message = path, message


def apply_changes(spec: Spec, changes: Iterable[tuple[str, Any]]) -> Spec:
    """The spec with other values at dotted paths. Another trainer comes first, and a whole object before the fields in it. Raises FieldPathError."""
    changed = copy.deepcopy(spec)
    for path, value in sorted(changes, key=lambda change: (change[0] != TRAINER, change[0].count("."))):
        if path == TRAINER:
            switch_trainer(changed, value)
        else:
            set_field(changed, path, copy.deepcopy(value))
    return changed


def switch_trainer(spec: Spec, trainer: Any) -> None:
    """Another trainer with its own defaults: base, methods and hyperparameters belong to the one before, only the number of steps stays."""
    training = spec.get("training")
    before = training if isinstance(training, dict) else {}
    if before.get("trainer") == trainer:
        return
    spec.pop("base", None)
    spec["methods"] = []
    kept = {"max_steps": before["max_steps"]} if "max_steps" in before and trainer in TRAINERS else {}
    spec["training"] = {"trainer": trainer, **kept}


def set_field(spec: Spec, path: str, value: Any) -> None:
    """Objects on the way that are not there are made; elements of lists are not. Raises FieldPathError."""
    at: Any = spec
    parts = path.split(".")
    while len(parts) > 1:
        if isinstance(at, list):
            index, parts = find_element(path, at, parts)
            at = at[index]
            continue
        part = parts.pop(0)
        if at.get(part) is None:
            at[part] = {}
        at = at[part]
        if not isinstance(at, dict | list):
            raise FieldPathError(path, f"{part} has no fields in it")
    if isinstance(at, list):
        at[find_element(path, at, parts)[0]] = value
    else:
        at[parts[0]] = value


def find_element(path: str, elements: list[Any], parts: list[str]) -> tuple[int, list[str]]:
    """(place in the list, the parts behind it) of an element called by its name, which may have dots, or by its place. Raises FieldPathError."""
    names = [name_of(element) for element in elements]
    for length in range(len(parts), 0, -1):
        if (name := ".".join(parts[:length])) in names:
            return check_rest(path, elements, names.index(name), parts[length:])
    if parts[0].isascii() and parts[0].isdigit() and len(parts[0]) < 4 and int(parts[0]) < len(elements):
        return check_rest(path, elements, int(parts[0]), parts[1:])
    raise FieldPathError(path, f"the recipe has no {parts[0]} there: use {', '.join(filter(None, names)) or 'a whole list'}")


def check_rest(path: str, elements: list[Any], index: int, rest: list[str]) -> tuple[int, list[str]]:
    if rest and not isinstance(elements[index], dict):
        raise FieldPathError(path, f"element {index} has no fields in it")
    return index, rest
