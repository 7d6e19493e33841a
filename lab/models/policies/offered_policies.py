"""Policies that no run of the team wrote: folders the operator put into LAB_POLICIES, and repositories of a hub that the team's runs started from."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from django.conf import settings
from django.db.models import Count, Max
from django.db.models.fields.json import KT

from lab.teams.accounts.models import Team
from lab.training.runs.models import Run
from trainers.contract import policy_folder

MOST = 100


@dataclass(frozen=True)
class OfferedPolicy:
    """``problems``: why it cannot be trained from, in words."""

    kind: str  # "folder" or "hub"
    name: str
    bytes: int | None
    problems: list[str]
    runs: int


def list_offered_policies(team: Team) -> list[OfferedPolicy]:
    counted = {
        (kind, Path(name).name if kind == "folder" else name): (count, newest)
        for kind, name, count, newest in started_from(team)
        if isinstance(name, str) and name
    }
    folders = [inspect_offered_folder(path, counted.get(("folder", path.name), (0, None))[0]) for path in folders_there()]
    hub = sorted((key[1] for key in counted if key[0] == "hub"), key=lambda name: -counted["hub", name][0])
    return [*folders, *(OfferedPolicy("hub", name, None, [], counted["hub", name][0]) for name in hub[:MOST])]


def started_from(team: Team) -> list[tuple[str, str, int, object]]:
    """(kind, name or path, runs, newest) of the specs' policies."""
    runs = Run.objects.of(team).annotate(kind=KT("spec__policy__kind"), hub=KT("spec__policy__name"), path=KT("spec__policy__path"))
    counted = runs.filter(kind__in=("hub", "folder")).order_by().values_list("kind", "hub", "path").annotate(Count("pk"), Max("number"))
    return [(kind, hub if kind == "hub" else path, count, newest) for kind, hub, path, count, newest in counted]


def folders_there() -> list[Path]:
    root = settings.POLICIES_ROOT
    if not root.is_dir():
        return []
    return sorted(path for path in root.iterdir() if path.is_dir() and not path.name.startswith("."))[:MOST]


def inspect_offered_folder(path: Path, runs: int) -> OfferedPolicy:
    inspection = policy_folder.inspect_policy_folder(path, "policy")
    bytes_ = sum(file.stat().st_size for file in path.iterdir() if file.is_file() and not file.is_symlink())
    return OfferedPolicy("folder", path.name, bytes_, [problem.message for problem in inspection.problems], runs)
