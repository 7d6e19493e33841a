"""The reward functions that a task's columns can be: those of the library, and what other rooms register (the team's own)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from lab.lib.registry import Registry
from lab.teams.accounts.models import Team
from lab.training.catalog.catalog import load_catalog

LIBRARY = "library"


@dataclass(frozen=True)
class RewardChoice:
    """``key`` is the value of the input. ``schema``: JSON schema of its parameters, empty where it has none. ``definition``: what the column holds
    before the parameters are known; ``origin``: the team's reward function that it is (``RewardOrigin``).
    """

    key: str
    title: str
    summary: str
    group: str
    definition: Mapping[str, Any]
    schema: Mapping[str, Any]
    origin: Mapping[str, int] | None = None

    def define(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """The definition of a column with these parameters; those at their default are left out."""
        if self.definition.get("kind") != LIBRARY:
            return dict(self.definition)
        properties = self.schema.get("properties", {})
        return {**self.definition, "config": {name: value for name, value in config.items() if value != properties.get(name, {}).get("default")}}


SOURCES: Registry[Callable[[Team], list[RewardChoice]]] = Registry("source of reward functions")


def list_library_choices() -> list[RewardChoice]:
    return [
        RewardChoice(
            f"{LIBRARY}:{entry['name']}",
            entry["title"],
            entry["summary"],
            "Library",
            {"kind": LIBRARY, "function": entry["name"]},
            entry["parameters"],
        )
        for entry in load_catalog().rewards
    ]


def list_reward_choices(team: Team) -> dict[str, RewardChoice]:
    """By key: the team's own first."""
    own = [choice for source in SOURCES.values() for choice in source(team)]
    return {choice.key: choice for choice in (*own, *list_library_choices())}
