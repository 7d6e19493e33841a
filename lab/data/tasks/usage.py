"""The runs of a task's versions: a run names the hash of the file it trains on. And the versions that use a reward function of the team."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from django.urls import reverse

from lab.data.tasks.models import Task, TaskVersion
from lab.training.rewards import usage as reward_usage
from lab.training.rewards.models import RewardFunction
from lab.training.rewards.usage import RewardUse
from lab.training.runs.models import Run


def find_version_runs(versions: Iterable[TaskVersion]) -> dict[str, list[Run]]:
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


def list_reward_uses(function: RewardFunction) -> list[RewardUse]:
    """Columns of the newest versions of tasks that were taken from it."""
    versions = TaskVersion.objects.of(function.team).filter(definition__rewards__contains=[{"origin": {"id": function.pk}}])
    found = []
    for version in versions.select_related("task").order_by("-pk")[: reward_usage.MOST]:
        url = f"{reverse('task', args=[version.task_id])}?v={version.number}"
        for column in version.definition["rewards"]:
            if (origin := column.get("origin")) and origin["id"] == function.pk:
                found.append(RewardUse("task", str(version), url, origin["version"], f"{column['name']}, weight {column['weight']:g}"))
    return found


def register_reward_uses() -> None:
    reward_usage.SOURCES.register("tasks", list_reward_uses)
