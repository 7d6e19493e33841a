"""Which run was trained from which policy and on which file, read from the specs as launched: four values a run."""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from django.db.models.fields.json import KT

from lab.data.datasets.models import Version
from lab.teams.accounts.models import Team
from lab.training.runs.models import Run
from trainers.contract.spec import FINAL

MOST_RUNS = 20_000  # newest runs that are looked at


@dataclass(frozen=True)
class LineageRun:
    """``source``: the run whose policy it started from; ``file``: name of the dataset it was trained on, "" for the task's own data."""

    pk: uuid.UUID
    number: int
    name: str
    status: str
    trainer: str
    task: str
    source: uuid.UUID | None
    checkpoint: str
    file: str


class RunLineage:
    """The runs of a team and what they descend from."""

    def __init__(self, team: Team) -> None:
        self.team = team
        fields = ("pk", "number", "name", "status", "trainer", "task", "parent_id", "folder_of_policy", "checkpoint_of_policy", "path_of_dataset")
        runs = (
            Run.objects.of(team)
            .order_by("-number")
            .annotate(
                folder_of_policy=KT("spec__policy__folder"),
                checkpoint_of_policy=KT("spec__policy__checkpoint"),
                path_of_dataset=KT("spec__dataset__path"),
            )
        )
        self.runs = {row[0]: build_descended_run(team, *row) for row in runs.values_list(*fields)[:MOST_RUNS]}

    @cached_property
    def children(self) -> dict[uuid.UUID, list[uuid.UUID]]:
        children = defaultdict(list)
        for run in self.runs.values():
            if run.source in self.runs and run.source is not None:
                children[run.source].append(run.pk)
        return children

    @cached_property
    def by_file(self) -> dict[str, list[uuid.UUID]]:
        by_file = defaultdict(list)
        for run in self.runs.values():
            if run.file:
                by_file[run.file].append(run.pk)
        return by_file

    def trained_on(self, versions: Iterable[Version]) -> list[LineageRun]:
        """Runs on these versions' files, oldest first."""
        files = {name for version in versions for name in (version.train_file, version.test_file) if name}
        return self._in_order(pk for name in files for pk in self.by_file.get(name, ()))

    def below(self, runs: Iterable[LineageRun]) -> list[LineageRun]:
        """Runs that started from these runs' policies, and from theirs, without the runs themselves."""
        own = {run.pk for run in runs}
        seen, waiting = set(own), list(own)
        while waiting:
            for child in self.children.get(waiting.pop(), ()):
                if child not in seen:
                    seen.add(child)
                    waiting.append(child)
        return self._in_order(seen - own)

    def above(self, pk: uuid.UUID) -> list[LineageRun]:
        """The run and those it descends from, nearest first."""
        ancestors: list[LineageRun] = []
        run = self.runs.get(pk)
        while run is not None and run not in ancestors:
            ancestors.append(run)
            run = self.runs.get(run.source) if run.source else None
        return ancestors

    def _in_order(self, keys: Iterable[uuid.UUID]) -> list[LineageRun]:
        return sorted((self.runs[pk] for pk in set(keys)), key=lambda run: run.number)


def build_descended_run(
    team: Team, pk: uuid.UUID, number: int, name: str, status: str, trainer: str, task: str, parent: Any, *spec: str | None
) -> LineageRun:
    folder, checkpoint, path = spec
    file = Path(path) if path else None
    own = file is not None and file.parent.name == str(team.pk)  # a file from the command line may be called the same
    return LineageRun(pk, number, name, status, trainer, task, run_id(folder) or parent, checkpoint or FINAL, file.name if file and own else "")


def run_id(folder: str | None) -> uuid.UUID | None:
    """A run folder is named by its run; a folder from the command line may have any name."""
    try:
        return uuid.UUID(Path(folder).name) if folder else None
    except ValueError:
        return None
