"""A batch: lines of the spool sorted into what the database needs of them. Reads nothing, writes nothing."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

from lab.training.runs import preparation
from lab.training.runs.metrics import NAME_LENGTH, Points
from lab.training.runs.models import Run
from lab.training.runs.reward_weights import EDITED_WEIGHTS
from trainers.contract.edits import MOST_CHANGES, pick_reward_weights
from trainers.contract.events import (
    COLD_START,
    Asked,
    AttemptFinished,
    AttemptStarted,
    Checkpoint,
    Edited,
    Event,
    Inputs,
    Memory,
    Metrics,
    Phase,
    Rollout,
    Saved,
    ShadowRewards,
    Warned,
)
from trainers.contract.reward_definitions import SHADOW
from trainers.contract.spec import MOST_RANKED
from trainers.contract.spool import Line

log = logging.getLogger(__name__)

SMALLINT, INTEGER, BIGINT = 2**15, 2**31, 2**63
MOST_PARTS = 30  # of an estimate of memory
SHADOW_LENGTH, MOST_SHADOW_VALUES = 60, 30
KEY_LENGTH = 64  # of a trainer's question
END_OF_TIME = 4e9  # seconds since 1970: the year 2096
PACE_WEIGHT = 0.1  # of the newest step in the smoothed seconds a step
LATEST = {
    "reward": "reward",
    "entropy": "entropy",
    "loss": "loss",
    "speed/tokens_per_second": "tokens_per_second",
    "heldout/reward": "heldout",
}


@dataclass
class SpoolBatch:
    """Lines from ``since`` to ``to`` of a spool. ``fields`` are the run's new values; ``broken`` says why lines were skipped."""

    since: int
    to: int
    run: Run
    fields: dict[str, Any] = field(default_factory=dict)
    rollouts: list[tuple[Rollout, int]] = field(default_factory=list)
    points: dict[int, Points] = field(default_factory=dict)  # by attempt
    started: list[tuple[AttemptStarted, int]] = field(default_factory=list)
    inputs: list[Inputs] = field(default_factory=list)
    memory: list[Memory] = field(default_factory=list)
    finished: list[AttemptFinished] = field(default_factory=list)
    saved: list[Checkpoint | Saved] = field(default_factory=list)
    warned: list[Warned] = field(default_factory=list)
    shadows: list[ShadowRewards] = field(default_factory=list)
    questions: list[Asked] = field(default_factory=list)
    edited: list[Edited] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)

    def value(self, name: str) -> Any:
        return self.fields[name] if name in self.fields else getattr(self.run, name)

    def add(self, line: Line) -> None:
        event = line.event
        reason = line.error if event is None else explain_event_refusal(event)
        if event is None or reason:
            self.broken.append(f"the line of the spool that ends at byte {line.end} was skipped: {reason}")
            return
        match event:
            case Rollout():
                self.rollouts.append((event, line.end))
            case ShadowRewards():
                self.shadows.append(event)
                self._add_points(event.attempt, event.step, event.values)
            case Metrics():
                self._add_metrics(event)
            case Phase():
                self._add_phase(event)
            case AttemptStarted():
                self._add_start(event, line.end)
            case Inputs():
                self.inputs.append(event)
            case Memory():
                self.memory.append(event)
            case AttemptFinished():
                self.finished.append(event)
            case Checkpoint() | Saved():
                self.saved.append(event)
            case Warned():
                self.warned.append(event)
            case Asked():
                self.questions.append(event)
            case Edited():
                self._add_edited(event)

    def _add_edited(self, event: Edited) -> None:
        self.edited.append(event)
        latest = self.value("latest")
        weights = latest.get(EDITED_WEIGHTS, {}) | pick_reward_weights(event.changes)
        self.fields["latest"] = latest | {"edits": latest.get("edits", 0) + 1} | ({EDITED_WEIGHTS: weights} if weights else {})

    def _add_phase(self, event: Phase) -> None:
        self.fields |= {"phase": event.name[:50], "phase_done": event.done, "phase_total": event.total}
        if event.name == COLD_START:
            self.fields["latest"] = self.value("latest") | cold_start(self.value("latest"), event)
        if noted := preparation.note_phase(self.value("latest"), event):
            self.fields["latest"] = self.value("latest") | noted

    def _add_start(self, event: AttemptStarted, end: int) -> None:
        self.started.append((event, end))
        latest = {name: value for name, value in self.value("latest").items() if name not in ("step_at", "at_step", "cold_start_at")}
        self.fields |= {
            "attempt": event.attempt,
            "step": event.from_step,
            "total_steps": event.total_steps,
            "special_tokens": {str(token): text for token, text in event.special_tokens.items()},
            "latest": latest,
        }

    def _add_points(self, attempt: int, step: int, values: dict[str, float]) -> Points:
        points = self.points.setdefault(attempt, {})
        for name, value in values.items():
            name = name[:NAME_LENGTH] if not name.startswith("@") else f"_{name[: NAME_LENGTH - 1]}"  # the axes' names are ours
            points.setdefault(name, []).append((step, value))
        return points

    def _add_metrics(self, event: Metrics) -> None:
        values = {**event.values, **{name: float(value) for name, value in event.nonfinite.items()}}
        points = self._add_points(event.attempt, event.step, values)
        points.setdefault("@time", []).append((event.step, event.time))
        if event.tokens:
            points.setdefault("@tokens", []).append((event.step, float(event.tokens)))
            self.fields["tokens"] = event.tokens
        latest = dict(self.value("latest"))
        latest |= {short: replace_nonfinite(values[name]) for name, short in LATEST.items() if name in values}
        if any(not name.startswith("heldout/") for name in values):
            latest |= smooth_step_seconds(latest, event) | preparation.note_first_step(latest, event)
            self.fields |= {"step": event.step, "phase": "training", "phase_done": event.step, "phase_total": self.value("total_steps")}
        self.fields["latest"] = latest

    def add_samples(self, samples: dict[str, float]) -> bool:
        """Puts measurements of the machine to the newest step of the batch, so that they share its axes; False when it has no step."""
        newest = max(self.points, default=0)
        times = self.points.get(newest, {}).get("@time")  # shadow rewards come by themselves, after their step
        if not times:
            return False
        step = times[-1][0]
        for name, value in samples.items():
            self.points[newest].setdefault(name, []).append((step, value))
        return True

    @property
    def span(self) -> tuple[int, int | None, int | None]:
        """How many rollouts, and their first and last step."""
        steps = [event.step for event, _ in self.rollouts]
        return len(steps), min(steps, default=None), max(steps, default=None)


def collect_batch(run: Run, lines: Iterable[Line]) -> SpoolBatch:
    batch = SpoolBatch(run.ingested, run.ingested, run)
    for line in lines:
        batch.add(line)
        batch.to = line.end
    if batch.broken:
        log.warning("run %s: %d lines of the spool skipped, first: %s", run.pk, len(batch.broken), batch.broken[0])
    return batch


def replace_nonfinite(value: float) -> float | None:
    return value if abs(value) < float("inf") else None


def smooth_step_seconds(latest: dict[str, Any], event: Metrics) -> dict[str, Any]:
    """Seconds a step, smoothed over the last ten or so; evaluations and checkpoints between steps count."""
    now = {"step_at": event.time, "at_step": event.step}
    before, steps = latest.get("step_at"), event.step - latest.get("at_step", event.step)
    if before is None or steps <= 0 or event.time < before:
        return now
    seconds, smooth = (event.time - before) / steps, latest.get("step_seconds")
    return now | {"step_seconds": seconds if smooth is None else (1 - PACE_WEIGHT) * smooth + PACE_WEIGHT * seconds}


def cold_start(latest: dict[str, Any], event: Phase) -> dict[str, float]:
    """Seconds the run has spent on the cold start of its policy, over all attempts: the next run finds it made, so no estimate counts them."""
    before, seconds = latest.get("cold_start_at", event.time), latest.get("cold_start_seconds", 0.0)
    return {"cold_start_at": event.time, "cold_start_seconds": seconds + max(0.0, event.time - before)}


def explain_event_refusal(event: Event) -> str:
    """Why the database could not hold the event; empty when it can. The types were checked when the line was read."""
    numbers: dict[str, tuple[float, float]] = {"attempt": (event.attempt, SMALLINT)}
    match event:
        case Rollout():
            fits = 0 <= event.attempt < SMALLINT and 0 <= event.sample < SMALLINT and 0 <= event.step < INTEGER
            if fits and 0 <= event.group < INTEGER and 0 <= (event.length or 0) < INTEGER and 0 <= event.time < END_OF_TIME:
                return ""  # the usual case, without a dict
            numbers |= {"step": (event.step, INTEGER), "group": (event.group, INTEGER), "sample": (event.sample, SMALLINT)}
            numbers |= {"length": (event.length or 0, INTEGER)}
        case Asked():
            numbers |= {"step": (event.step, INTEGER), "group": (event.group, INTEGER), "deadline": (event.deadline, END_OF_TIME)}
            if not 0 < len(event.key) <= KEY_LENGTH or not 2 <= len(event.completions) <= MOST_RANKED:
                return f"a question has a key of 1 to {KEY_LENGTH} characters and 2 to {MOST_RANKED} completions"
        case ShadowRewards():
            numbers |= {"step": (event.step, INTEGER)}
            if not (event.name.endswith(SHADOW) and len(event.name) <= SHADOW_LENGTH and len(event.values) <= MOST_SHADOW_VALUES):
                return (
                    f"a shadow's name ends in {SHADOW!r}, has at most {SHADOW_LENGTH} characters and comes with at most {MOST_SHADOW_VALUES} numbers"
                )
            if any(not (0 <= group < INTEGER and 0 <= sample < SMALLINT) for group, sample, _ in event.scores):
                return "a shadow's score is of no rollout that can be stored"
        case Edited():
            numbers |= {"step": (event.step, INTEGER)}
            if not 0 < len(event.key) <= KEY_LENGTH or len(event.changes) > MOST_CHANGES:
                return f"an edit has a key of 1 to {KEY_LENGTH} characters and at most {MOST_CHANGES} settings"
        case Metrics():
            numbers |= {"step": (event.step, INTEGER), "tokens": (event.tokens, BIGINT)}
        case Phase():
            numbers |= {"done": (event.done, INTEGER), "total": (event.total, INTEGER)}
        case AttemptStarted():
            numbers |= {"from_step": (event.from_step, INTEGER), "total_steps": (event.total_steps, INTEGER)}
        case Memory():
            numbers |= {"peak": (event.peak, BIGINT), "device_memory": (event.device_memory, BIGINT)}
            if len(event.parts) > MOST_PARTS or any(not 0 <= size < BIGINT for part in event.parts for size in (part.low, part.high)):
                return f"an estimate of memory has at most {MOST_PARTS} parts, none below 0"
        case Checkpoint() | Saved():
            numbers |= {"step": (event.step, INTEGER), "bytes": (event.bytes, BIGINT)}
            if not event.path or event.path.startswith("/") or ".." in PurePosixPath(event.path).parts or len(event.path) > 300:
                return f"path {event.path[:80]!r} is not inside the run folder"
    for name, (value, limit) in numbers.items():
        if not 0 <= value < limit:
            return f"{name} {value} is not between 0 and {limit - 1}"
    return "" if 0 <= event.time < END_OF_TIME else f"time {event.time} is not in this century"
