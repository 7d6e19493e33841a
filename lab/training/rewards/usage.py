"""Where a reward function is used: runs of the team, and what other rooms register (tasks)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from django.urls import reverse

from lab.lib.registry import Registry
from lab.training.rewards.models import RewardFunction
from lab.training.runs.models import Run

MOST = 50


@dataclass(frozen=True)
class RewardUse:
    """``kind``: run or task. ``about``: weight, or that it is a shadow."""

    kind: str
    words: str
    url: str
    version: int
    about: str


SOURCES: Registry[Callable[[RewardFunction], list[RewardUse]]] = Registry("source of uses of reward functions")


def list_run_uses(function: RewardFunction) -> list[RewardUse]:
    """Of the newest runs, newest first."""
    found = []
    runs = Run.objects.of(function.team).filter(spec__rewards__contains=[{"origin": {"id": function.pk}}])
    for run in runs.order_by("-number").only("id", "number", "name", "spec")[:MOST]:
        for column in run.spec["rewards"]:
            if (origin := column.get("origin")) and origin["id"] == function.pk:
                about = "shadow" if column.get("shadow") else f"weight {column.get('weight', 1):g}"
                found.append(
                    RewardUse("run", f"#{run.number} {run.name}", reverse("run", args=[run.pk]), origin["version"], f"{column['name']}, {about}")
                )
    return found


def list_uses(function: RewardFunction) -> list[RewardUse]:
    return [*list_run_uses(function), *(use for source in SOURCES.values() for use in source(function))]
