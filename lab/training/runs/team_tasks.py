"""The team's own tasks as runs see them: rooms further right that keep such tasks register where they are found.

A spec that is not launched yet names a version by its id (``task: {"version": 7}``) or by the hash of its file; a launched one holds the file's path,
its hash, and the weight of every reward function, so that reading a run needs no task.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab.lib.registry import Registry
from lab.teams.accounts.models import Team
from trainers.contract.problems import Problem, SpecError
from trainers.contract.task_files import ALL_ROWS

VERSION = "version"


@dataclass(frozen=True)
class TeamTask:
    """A version of a task. ``entry`` is what the catalogue would say of it; ``key`` what an input holds."""

    key: str
    name: str
    number: int
    url: str
    path: Path
    sha256: str
    entry: Mapping[str, Any]

    @property
    def label(self) -> str:
        return f"{self.name} v{self.number}"

    @property
    def weights(self) -> dict[str, float]:
        return {reward["name"]: float(reward["weight"]) for reward in self.entry["rewards"]}

    @property
    def spec(self) -> dict[str, Any]:
        """``task`` of a spec that is not launched, without changes of the weights."""
        return {"name": self.name, "file": {"path": self.path.name, "sha256": self.sha256}, "difficulty": ALL_ROWS}


@dataclass(frozen=True)
class TeamTaskSource:
    """``list_newest``: of every task the newest version, newest first. ``find``: by a key or by the SHA-256 of a file, in the bin or not."""

    list_newest: Callable[[Team], list[TeamTask]]
    find: Callable[[Team, str], TeamTask | None]


SOURCES: Registry[TeamTaskSource] = Registry("source of tasks")


def list_team_tasks(team: Team) -> list[TeamTask]:
    return [task for source in SOURCES.values() for task in source.list_newest(team)]


def find_team_task(team: Team, key: str) -> TeamTask | None:
    return next((task for source in SOURCES.values() if (task := source.find(team, key))), None)


def find_spec_task(team: Team, spec: Mapping[str, Any]) -> TeamTask | None:
    """The team's task that a spec, launched or not, names; None for a task of the catalogue, and for a version that is gone."""
    task = spec.get("task")
    file = task.get("file") if isinstance(task, Mapping) else None
    sha256 = file.get("sha256") if isinstance(file, Mapping) else None
    return find_team_task(team, sha256) if isinstance(sha256, str) else None


def resolve_task(team: Team, task: dict[str, Any], *, paths: bool = False) -> dict[str, Any]:
    """A task of a spec with its file. Raises SpecError for a version that the team does not have.

    ``paths``: a file that is no version of the team's is taken as it is (command line).
    """
    file = task.get("file")
    if VERSION in task:
        field, given = "task.version", task[VERSION]
        found = find_team_task(team, f"{VERSION}-{given}") if isinstance(given, int | str) and not isinstance(given, bool) else None
    elif isinstance(file, dict):
        field, given = "task.file.sha256", file.get("sha256")
        found = find_team_task(team, given) if isinstance(given, str) else None
        if found is None and paths and isinstance(file.get("path"), str):
            return {**task, "file": {**file, "path": str(Path(file["path"]).expanduser().resolve())}}
    else:
        return task
    if found is None:
        raise SpecError([Problem(field, given, "your team has no such version of a task", "choose one of its tasks")])
    rewards = task.get("rewards") or {}
    if not isinstance(rewards, dict):
        raise SpecError([Problem("task.rewards", rewards, "not weights by the names of reward functions", 'for example {"accuracy": 1}')])
    kept = {name: weight for name, weight in rewards.items() if VERSION not in task or name in found.weights}  # those of a recipe's own task go
    return {**found.spec, "file": {"path": str(found.path), "sha256": found.sha256}, "rewards": found.weights | kept}


def name_task_file(task: dict[str, Any]) -> dict[str, Any]:
    """The reverse of ``resolve_task``, for a form: the file by its name."""
    file = task.get("file")
    return {**task, "file": {**file, "path": Path(str(file.get("path", ""))).name}} if isinstance(file, dict) else task
