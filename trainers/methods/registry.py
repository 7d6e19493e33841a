"""Finds methods by name: every module of the groups below that defines a subclass of Method with a card, and the entry points of installed packages.

A third party adds methods with an entry point in the group ``policy_lab.methods`` whose value is a Method subclass.
"""

import importlib
import pkgutil
from functools import cache
from importlib.metadata import entry_points

from trainers.methods import analysis, bases, group, pairs, prompts, tokens, worlds
from trainers.methods.base import Method

GROUPS = {"bases": bases, "group": group, "tokens": tokens, "prompts": prompts, "pairs": pairs, "worlds": worlds, "analysis": analysis}
ENTRY_POINTS = "policy_lab.methods"


class UnknownMethod(LookupError):
    """No method has this name."""


def module_name(name: str) -> str:
    """The module of a method: its name, with underscores for hyphens and dots."""
    return name.replace("-", "_").replace(".", "_")


@cache
def find_method_modules() -> dict[str, str]:
    """Module (without package) -> full dotted name, of every built-in method; imports nothing."""
    return {found.name: f"{package.__name__}.{found.name}" for package in GROUPS.values() for found in pkgutil.iter_modules(package.__path__)}


def method_in(module: str) -> type[Method]:
    """The method that a module defines."""
    loaded = importlib.import_module(module)
    (kind,) = (
        value
        for value in vars(loaded).values()
        if isinstance(value, type) and issubclass(value, Method) and value.__module__ == module and "card" in vars(value)
    )
    return kind


def load_method_class(name: str) -> type[Method]:
    """The method called ``name``; imports only its module. Raises UnknownMethod."""
    if place := find_method_modules().get(module_name(name)):
        kind = method_in(place)
        if kind.card.name == name:
            return kind
    for point in entry_points(group=ENTRY_POINTS):
        if point.name == name:
            kind = point.load()
            return kind
    raise UnknownMethod(name)


def built_in() -> list[tuple[str, type[Method]]]:
    """(group, method) of every built-in method: the bases first, then group by group in the order of their names."""
    found = []
    for group_name, package in GROUPS.items():
        for module in sorted(module.name for module in pkgutil.iter_modules(package.__path__)):
            found.append((group_name, method_in(f"{package.__name__}.{module}")))
    return found
