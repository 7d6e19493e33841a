"""The reward functions that people choose from: those of the library, and what other rooms register (the team's own). With the inputs of their
parameters, made of the schema that the catalogue holds.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from lab.lib.registry import Registry
from lab.teams.accounts.models import Team
from lab.training.catalog.catalog import load_catalog
from lab.training.runs.schema_form import build_schema_fields
from lab.training.runs.spec_form import SpecForm

LIBRARY = "library"
VERSION_NUMBER, NO_NAME = re.compile(r" v\d+$"), re.compile(r"[^a-z0-9_-]+")


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
        if self.definition.get("kind") != LIBRARY or self.origin:
            return dict(self.definition)
        properties = self.schema.get("properties", {})
        return {**self.definition, "config": {name: value for name, value in config.items() if value != properties.get(name, {}).get("default")}}

    def suggest_name(self, taken: Collection[str]) -> str:
        """A name for its column that is free."""
        title = VERSION_NUMBER.sub("", self.title) if self.origin else self.key.partition(":")[2]
        base = NO_NAME.sub("-", title.lower()).strip("-_0123456789")[:36] or "reward"
        return next(name for name in (base, *(f"{base}-{number}" for number in range(2, len(taken) + 3))) if name not in taken)

    def build_form(self, data: Mapping[str, Any], prefix: str) -> SpecForm:
        """Its parameters below ``<prefix>.config``. Those that were sent for another choice are not read: ``<prefix>.shown`` says whose they are."""
        sent = data if data.get(f"{prefix}.shown") == self.key else None
        return SpecForm(sent, f"{prefix}.config", None, build_schema_fields(self.schema))

    def write_inputs(self, config: Mapping[str, Any], prefix: str) -> dict[str, str]:
        """What the inputs hold for these parameters, as ``build_form`` reads it."""
        inputs = {f"{prefix}.choice": self.key, f"{prefix}.shown": self.key}
        for name, made in build_schema_fields(self.schema).items():
            value = config.get(name, made.initial)
            if isinstance(value, bool):
                inputs |= {f"{prefix}.config.{name}": "on"} if value else {}
            else:
                inputs[f"{prefix}.config.{name}"] = str(made.prepare_value(value))
        return inputs


@dataclass(frozen=True)
class KnownVersion:
    """A version of a reward function of the team: what it is called and where its page is."""

    label: str
    url: str


Origin = tuple[int, int]  # id and version, as a column's ``origin`` names them
SOURCES: Registry[Callable[[Team], list[RewardChoice]]] = Registry("source of reward functions")
VERSIONS: Registry[Callable[[Team, Collection[Origin]], dict[Origin, KnownVersion]]] = Registry("source of versions of reward functions")


def find_known_versions(team: Team, origins: Collection[Origin]) -> dict[Origin, KnownVersion]:
    """Those of the team; an origin that is not the team's, or gone, has none."""
    return {origin: known for find in VERSIONS.values() for origin, known in find(team, origins).items()} if origins else {}


def read_origin(column: Mapping[str, Any]) -> Origin | None:
    """Of a column of a stored spec."""
    origin = column.get("origin")
    if not isinstance(origin, Mapping) or not all(isinstance(origin.get(name), int) for name in ("id", "version")):
        return None
    return origin["id"], origin["version"]


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


def group_choices(choices: Mapping[str, RewardChoice]) -> list[tuple[str, list[RewardChoice]]]:
    """For the optgroups of a select."""
    groups: dict[str, list[RewardChoice]] = {}
    for choice in choices.values():
        groups.setdefault(choice.group, []).append(choice)
    return list(groups.items())
