"""The catalogue of recipes, tasks, trainers and policies, read from JSON so that no web process imports torch.

``trainers/catalog.json`` comes with the code. ``<LAB_HOME>/catalog.json`` replaces it where tasks of other packages are installed; ``manage.py
up`` writes it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from django.conf import settings

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

    def recipe(self, name: str) -> dict[str, Any]:
        return found("recipe", name, {recipe["name"]: recipe for recipe in self.recipes})

    def task(self, name: str) -> dict[str, Any]:
        return found("task", name, {task["name"]: task for task in self.tasks})

    def trainer(self, name: str) -> dict[str, Any]:
        return found("trainer", name, self.trainers)

    def policy(self, kind: str) -> dict[str, Any]:
        return found("policy", kind, {policy["kind"]: policy for policy in self.policies})

    def hyperparameters(self, trainer: str) -> frozenset[str]:
        """Names of the fields in the ``training`` part of a spec for this trainer."""
        return frozenset(self.trainer(trainer)["schema"]["properties"])


def found(what: str, name: str, there_are: dict[str, dict[str, Any]]) -> dict[str, Any]:
    try:
        return there_are[name]
    except KeyError:
        raise CatalogError(f"there is no {what} named {name!r}; there are: {listed(there_are)}") from None


def listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "none"


def catalog() -> Catalog:
    """The catalogue, read again when its file changes. Raises CatalogError when the file cannot be used."""
    own = Path(settings.HOME) / "catalog.json"
    path = own if own.exists() else BUILT_IN
    try:
        return _read(path, path.stat().st_mtime_ns)
    except (OSError, ValueError) as error:
        raise CatalogError(
            f"the catalogue {path} cannot be read ({error}); make it again: make catalog, or delete it if it is not the one in trainers/"
        ) from error


@lru_cache(maxsize=2)
def _read(path: Path, changed: int) -> Catalog:
    data = json.loads(path.read_bytes())
    missing = {"schema", "recipes", "tasks", "trainers", "policies"} - set(data)
    if missing:
        raise ValueError(f"it has no {listed(missing)}")
    return Catalog(data)
