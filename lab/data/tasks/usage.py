"""The runs of a task's versions: a run names the hash of the file it trains on."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from lab.data.tasks.models import Task, TaskVersion
from lab.training.runs.models import Run


def runs_of(versions: Iterable[TaskVersion]) -> dict[str, list[Run]]:
    """SHA-256 of a version -> its runs, newest first, without those in the bin. Versions without one are missing."""
    own = list(versions)
    if not own:
        return {}
    digests, team = [version.sha256 for version in own], own[0].task.team_id
    found: defaultdict[str, list[Run]] = defaultdict(list)
    for run in Run.objects.of(team).filter(spec__task__file__sha256__in=digests).order_by("-number"):
        found[str(run.spec["task"]["file"]["sha256"])].append(run)
    return dict(found)


def is_used(task: Task) -> bool:
    """Whether a run names a version of the task, in the bin or not: it may be restored, resumed, replayed or branched."""
    digests = list(task.versions.values_list("sha256", flat=True))
    return Run.objects.filter(team=task.team_id, spec__task__file__sha256__in=digests).exists()
