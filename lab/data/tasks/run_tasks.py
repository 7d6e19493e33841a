"""The team's tasks as runs see them: what the launch form offers, and which version a spec names."""

from __future__ import annotations

from typing import Any

from django.db.models import OuterRef, Subquery
from django.urls import reverse

from lab.data.tasks.models import TaskVersion
from lab.data.tasks.version_words import describe_reward
from lab.lib.numbers import MAX_ID, parse_whole_number
from lab.teams.accounts.models import Team
from lab.training.runs.team_tasks import SOURCES, VERSION, TeamTask, TeamTaskSource
from trainers.contract.task_files import ALL_ROWS

OFFERED = 40
DEMONSTRATED = "The demonstrations of its rows. {} of {} have one."
REFERENCES = "None of its own: a reference answer is one where it gets the full reward."


def describe_task(version: TaskVersion) -> TeamTask:
    url = f"{reverse('task', args=[version.task_id])}?v={version.number}"
    return TeamTask(f"{VERSION}-{version.pk}", version.definition["name"], version.number, url, version.path, version.sha256, build_entry(version))


def build_entry(version: TaskVersion) -> dict[str, Any]:
    """What the catalogue says of its tasks, of this one."""
    counts, definition = version.counts, version.definition
    total = counts["train"] + counts["heldout"]
    written = DEMONSTRATED.format(f"{counts['demonstrations']:,}", f"{total:,}") if counts["demonstrations"] else REFERENCES
    return {
        "name": definition["name"],
        "title": f"{definition['name']} v{version.number}",
        "summary": f"{counts['train']:,} prompts to train on, {counts['heldout']:,} held out.",
        "difficulties": {ALL_ROWS: "All rows of the task."},
        "rewards": [
            {
                "name": column["name"],
                "summary": describe_reward(column),
                "weight": column["weight"],
            }
            for column in definition["rewards"]
            if not column["shadow"]
        ],
        "demonstrations": written,
        "turns": 1,
        "example": {"prompt": counts["example"]["prompt"], "gold": counts["example"]["reference"]},
    }


def list_newest(team: Team) -> list[TeamTask]:
    newest = TaskVersion.objects.filter(task=OuterRef("task")).order_by("-number").values("pk")[:1]
    rows = TaskVersion.objects.of(team).filter(pk=Subquery(newest)).select_related("task").order_by("-task__changed_at", "-pk")
    return [describe_task(version) for version in rows[:OFFERED]]


def find_version(team: Team, key: str) -> TeamTask | None:
    """By its id or by the hash of its file. Those of a task in the bin are found by their hash: runs may name them."""
    rows = TaskVersion.objects.filter(task__team=team).select_related("task")
    if key.startswith(f"{VERSION}-"):
        number = parse_whole_number(key.removeprefix(f"{VERSION}-"), MAX_ID, 1)
        version = rows.filter(pk=number, task__binned_at=None).first() if number else None
    else:
        version = rows.filter(sha256=key).order_by("-pk").first() if len(key) == 64 else None
    return describe_task(version) if version else None


def register_run_tasks() -> None:
    SOURCES.register("tasks", TeamTaskSource(list_newest, find_version))
