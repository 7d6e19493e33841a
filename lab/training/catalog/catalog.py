"""The catalogue of recipes, methods, tasks, trainers and policies, read from JSON so that no web process imports torch.

``trainers/catalog.json`` comes with the code; to it comes what workers publish of other packages (``publishing``). A file
``<LAB_HOME>/catalog.json`` that an operator has put there replaces both.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from django.conf import settings
from django.utils.safestring import SafeString

from lab.training.catalog.published import PARTS, Additions, fetch_published_additions, select_unknown_entries

BUILT_IN = Path(settings.BASE) / "trainers" / "catalog.json"


class CatalogError(LookupError):
    """Nothing of that name; the message lists what there is."""

    def __str__(self) -> str:
        return str(self.args[0])


@dataclass(frozen=True)
class Catalog:
    """Decoded ``catalog.json``; callers must not change what they get."""

    data: dict[str, Any]

    @property
    def schema(self) -> dict[str, Any]:
        """JSON schema of a whole RunSpec."""
        schema: dict[str, Any] = self.data["schema"]
        return schema

    @property
    def recipes(self) -> list[dict[str, Any]]:
        return list(self.data["recipes"])

    @property
    def tasks(self) -> list[dict[str, Any]]:
        return list(self.data["tasks"])

    @property
    def trainers(self) -> dict[str, dict[str, Any]]:
        return dict(self.data["trainers"])

    @property
    def policies(self) -> list[dict[str, Any]]:
        return list(self.data["policies"])

    @property
    def methods(self) -> list[dict[str, Any]]:
        return list(self.data["methods"])

    @property
    def rewards(self) -> list[dict[str, Any]]:
        """The library of reward functions; none in a catalogue of an older version."""
        return list(self.data.get("rewards", []))

    def recipe(self, name: str) -> dict[str, Any]:
        return find_catalog_entry("recipe", name, {recipe["name"]: recipe for recipe in self.recipes})

    def task(self, name: str) -> dict[str, Any]:
        return find_catalog_entry("task", name, {task["name"]: task for task in self.tasks})

    def trainer(self, name: str) -> dict[str, Any]:
        return find_catalog_entry("trainer", name, self.trainers)

    def policy(self, kind: str) -> dict[str, Any]:
        return find_catalog_entry("policy", kind, {policy["kind"]: policy for policy in self.policies})

    def method(self, name: str) -> dict[str, Any]:
        return find_catalog_entry("method", name, self.methods_by_name)

    @cached_property
    def methods_by_name(self) -> dict[str, dict[str, Any]]:
        return {method["name"]: method for method in self.data["methods"]}

    @cached_property
    def task_bodies(self) -> dict[str, SafeString]:
        """What a launch form shows of an untouched task, by its name: written by the first form, good for as long as the catalogue is."""
        return {}

    def bases(self, trainer: str) -> list[dict[str, Any]]:
        """What methods can be stacked on under this trainer."""
        return [method for method in self.methods if method["group"] == "bases" and method["trainer"] == trainer]

    def stackable(self, trainer: str) -> list[dict[str, Any]]:
        """The methods that go with this trainer."""
        return [method for method in self.methods if method["group"] != "bases" and trainer in method["trains"]]

    def hyperparameters(self, trainer: str) -> frozenset[str]:
        """Names of the fields in the ``training`` part of a spec for this trainer."""
        return frozenset(self.trainer(trainer)["schema"]["properties"])


def find_catalog_entry(what: str, name: str, there_are: dict[str, dict[str, Any]]) -> dict[str, Any]:
    try:
        return there_are[name]
    except KeyError:
        raise CatalogError(f"there is no {what} named {name!r}; there are: {join_sorted_names(there_are)}") from None


def join_sorted_names(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "none"


def load_catalog() -> Catalog:
    """The catalogue, read again when its file changes. Raises CatalogError when the file cannot be used."""
    own = Path(settings.HOME) / "catalog.json"
    path = own if own.exists() else BUILT_IN
    try:
        built_in = _read_catalog_file(path, path.stat().st_mtime_ns)
        return built_in if path == own else _extend_catalog(built_in, fetch_published_additions())
    except (OSError, ValueError) as error:
        raise CatalogError(
            f"the catalogue {path} cannot be read ({error}); make it again: make catalog, or delete it if it is not the one in trainers/"
        ) from error


_last: tuple[Catalog, tuple[Additions, ...], Catalog] | None = None  # base and additions as they were put together last, and what came of it


def _extend_catalog(base: Catalog, additions: tuple[Additions, ...]) -> Catalog:
    """With the tasks and methods that the base does not have."""
    global _last
    if not additions:
        return base
    last = _last
    if last is None or last[0] is not base or last[1] is not additions:
        data = dict(base.data)
        for part in PARTS:
            for addition in additions:
                data[part] = [*data[part], *select_unknown_entries(data[part], addition.get(part, []))]
        last = _last = (base, additions, Catalog(data))
    return last[2]


@lru_cache(maxsize=2)
def _read_catalog_file(path: Path, changed: int) -> Catalog:
    data = json.loads(path.read_bytes())
    missing = {"schema", "recipes", "tasks", "trainers", "policies", "methods"} - set(data)
    if missing:
        raise ValueError(f"it has no {join_sorted_names(missing)}")
    return Catalog(data)
