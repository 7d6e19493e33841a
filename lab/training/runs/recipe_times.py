"""How long a recipe takes, as this team's own finished runs of it say: nobody else's machine is asked, and without such runs nothing is said."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

from lab.teams.accounts.models import Team
from lab.training.catalog.catalog import Catalog
from lab.training.runs.models import Run, Status

NEWEST = 12  # runs of a stage that its time rests on
READ = 200  # newest finished runs that are looked through


@dataclass(frozen=True)
class RecipeTime:
    """``seconds`` of all stages one after the other, each at the median of its ``runs``, without waiting in the queue and without a cold start."""

    seconds: float
    runs: int


def measure_recipe_times(team: Team, catalog: Catalog) -> dict[str, RecipeTime]:
    """By the recipe's name; a recipe one of whose stages the team has never finished is left out. A query."""
    paces = fetch_step_seconds(team)
    measured = {}
    for recipe in catalog.recipes:
        stages = [(paces.get((recipe["name"], stage["spec"]["training"]["trainer"]), []), stage["spec"]["training"]) for stage in recipe["stages"]]
        if all(seconds for seconds, _ in stages):
            total = sum(median(seconds) * count_stage_steps(catalog, training) for seconds, training in stages)
            measured[recipe["name"]] = RecipeTime(total, min(len(seconds) for seconds, _ in stages))
    return measured


def fetch_step_seconds(team: Team) -> dict[tuple[str, str], list[float]]:
    """(recipe, trainer) → seconds a step of its newest runs that one attempt has finished, evaluations and checkpoints included."""
    finished = Run.objects.of(team).filter(status=Status.FINISHED, attempt=1, outside=False, step__gt=0, started_at__isnull=False)
    columns = ("recipe", "trainer", "step", "started_at", "finished_at", "latest")
    paces: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
    for run in finished.filter(finished_at__isnull=False).order_by("-number").values(*columns)[:READ]:
        known = paces[run["recipe"], run["trainer"]]
        if len(known) < NEWEST:
            known.append(compute_step_seconds(run))
    return paces


def compute_step_seconds(run: Mapping[str, Any]) -> float:
    took = (run["finished_at"] - run["started_at"]).total_seconds() - run["latest"].get("cold_start_seconds", 0.0)
    return max(0.0, took) / int(run["step"])


def count_stage_steps(catalog: Catalog, training: Mapping[str, Any]) -> int:
    return int(training.get("max_steps", catalog.trainer(training["trainer"])["schema"]["properties"]["max_steps"]["default"]))
