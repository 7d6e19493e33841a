"""What a run's recipe stacks: the base and the methods on it, by name and as the catalogue describes them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from django.urls import reverse

from lab.training.catalog.catalog import CatalogError, load_catalog
from trainers.contract.stacking import DEFAULT_BASES

Entry = dict[str, Any]


@dataclass(frozen=True)
class Stack:
    """Names of a recipe's base and of its methods, in the order they act."""

    base: str
    methods: tuple[str, ...]

    @property
    def names(self) -> tuple[str, ...]:
        return (*([self.base] if self.base else []), *self.methods)


def stack_of(spec: Mapping[str, Any]) -> Stack:
    """Of any stored spec: one of an older version has neither base nor methods and stands on its trainer's default base. Of a run that was trained
    elsewhere nobody knows it.
    """
    training = spec.get("training")
    trainer = training.get("trainer", "") if isinstance(training, dict) and "outside" not in spec else ""
    return build_stack(spec.get("base"), spec.get("methods"), trainer)


def build_stack(base: Any, methods: Any, trainer: str) -> Stack:
    chosen = name_of(base) or DEFAULT_BASES.get(trainer, "")
    return Stack(chosen, tuple(name for name in map(name_of, methods if isinstance(methods, list) else ()) if name))


def name_of(choice: Any) -> str:
    return str(choice.get("name", "")) if isinstance(choice, dict) else ""


def load_method_entries(names: Iterable[str]) -> dict[str, Entry]:
    """The catalogue's entries of these methods; one it does not know, or no longer knows, is left out."""
    try:
        known = {entry["name"]: entry for entry in load_catalog().data.get("methods", ())}
    except CatalogError:
        known = {}
    return {name: known[name] for name in names if name in known}


@dataclass(frozen=True)
class MethodChip:
    name: str
    title: str
    url: str
    base: bool = False


def build_method_chips(stack: Stack) -> list[MethodChip]:
    """The stack for a line of chips, base first."""
    known = load_method_entries(stack.names)
    chips = [MethodChip(name, known.get(name, {}).get("title", ""), page_of(name) if name in known else "") for name in stack.names]
    return [replace(chips[0], base=True), *chips[1:]] if stack.base else chips


def page_of(name: str) -> str:
    """The address of a method's page."""
    return reverse("method", args=[name])
