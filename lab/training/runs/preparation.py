"""What a run does before its first step, stage by stage with times: kept by the ingest in ``Run.latest``, shown until that step is there."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from lab.training.runs.models import Run, Status
from trainers.contract.events import COLD_START, Metrics, Phase

KEY = "preparation"
FIRST_STEP = "training"  # the phase that ends with the first step
MOST_STAGES = 20
LEAST_DONE = 0.02  # of a stage, before it says how long the rest takes
LABELS = {
    "loading": "Load the policy",
    COLD_START: "Train the cold start",
    "starting vLLM": "Start the vLLM server",
    "preparing": "Set up the trainer",
    "preparing data": "Prepare the data",
    "sampling pairs": "Sample pairs of answers",
    "evaluating": "Measure held-out reward",
    "waiting for people": "Wait for people",
    FIRST_STEP: "First step",
}
NOTES = {COLD_START: "once for this task; later runs reuse it"}


def note_phase(latest: dict[str, Any], event: Phase) -> dict[str, Any]:
    """What a report of the trainer changes in ``Run.latest``; nothing once the first step has begun."""
    stages = _stages_of(latest, event.attempt)
    if stages and (stages[-1]["name"] == FIRST_STEP or len(stages) == MOST_STAGES):
        return {}
    now = {"done": event.done, "total": event.total, "to": event.time}
    if stages and stages[-1]["name"] == event.name:
        return _keep_stages(event.attempt, [*stages[:-1], stages[-1] | now])
    before = [*stages[:-1], stages[-1] | {"to": event.time}] if stages else []
    return _keep_stages(event.attempt, [*before, {"name": event.name[:50], "from": event.time, **now}])


def note_first_step(latest: dict[str, Any], event: Metrics) -> dict[str, Any]:
    stages = _stages_of(latest, event.attempt)
    if not stages or stages[-1]["name"] != FIRST_STEP or "over" in stages[-1]:
        return {}
    return _keep_stages(event.attempt, [*stages[:-1], stages[-1] | {"to": event.time, "over": True}])


def _keep_stages(attempt: int, stages: list[dict[str, Any]]) -> dict[str, Any]:
    return {KEY: {"attempt": attempt, "stages": stages}}


def _stages_of(latest: dict[str, Any], attempt: int) -> list[dict[str, Any]]:
    """Not to be changed in place."""
    known = latest.get(KEY)
    return list(known["stages"]) if known and known["attempt"] == attempt else []


@dataclass(frozen=True)
class Stage:
    """``state``: done, now or next. ``seconds``: so far, None where that is not known; ``left``: to go at its pace, None where it cannot be told."""

    label: str
    state: str
    note: str = ""
    seconds: float | None = None
    done: int = 0
    total: int = 0
    left: float | None = None


def is_preparing(run: Run) -> bool:
    """Whether the run has yet to make its first step. An outside run prepares where nobody here sees it."""
    return run.is_open and not run.outside and run.step == 0


def list_stages(run: Run, now: datetime) -> list[Stage]:
    """From the queue to the first step; ``now`` by the database's clock."""
    waits = run.status in (Status.QUEUED, Status.LOST)
    reported = [] if waits else _stages_of(run.latest, run.attempt)
    queued = ((now if waits or run.started_at is None else run.started_at) - run.queued_at).total_seconds()
    stages = [Stage("Wait for a worker", "now" if waits else "done", seconds=max(0.0, queued) if waits or run.attempt <= 1 else None)]
    stages.append(_starting_stage(run, reported, now, waits))
    for place, stage in enumerate(reported):
        stages.append(_reported_stage(stage, now.timestamp() if place == len(reported) - 1 else stage["to"], place == len(reported) - 1))
    ahead = [] if any(stage["name"] == FIRST_STEP for stage in reported) else [FIRST_STEP]
    if not reported:
        ahead = ["loading", *ahead]
    return [*stages, *(Stage(LABELS[name], "next", NOTES.get(name, "")) for name in ahead)]


def _starting_stage(run: Run, reported: list[dict[str, Any]], now: datetime, waits: bool) -> Stage:
    label, note = "Start the trainer", "import torch and TRL"
    if waits:
        return Stage(label, "next", note)
    seconds = None
    if run.started_at is not None and run.attempt <= 1:
        seconds = max(0.0, (reported[0]["from"] if reported else now.timestamp()) - run.started_at.timestamp())
    return Stage(label, "done" if reported else "now", note, seconds)


def _reported_stage(stage: dict[str, Any], until: float, last: bool) -> Stage:
    name, done, total, seconds = stage["name"], stage["done"], stage["total"], max(0.0, until - stage["from"])
    running = last and "over" not in stage
    counts = total if name != FIRST_STEP else 0
    left = seconds / done * (total - done) if running and counts and done >= LEAST_DONE * total else None
    return Stage(LABELS.get(name, name.capitalize()), "now" if running else "done", NOTES.get(name, ""), seconds, done if counts else 0, counts, left)
