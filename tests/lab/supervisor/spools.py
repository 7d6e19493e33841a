"""Events and spools for the supervisor's tests, and what a spool says the database must hold."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from lab.rollouts.trajectories.models import Rollout as Stored
from lab.supervision.supervisor.ingest import ingest_spool
from lab.teams.accounts.models import Team
from lab.training.runs import metrics
from lab.training.runs.models import Run
from trainers.contract import arrays, spool
from trainers.contract.events import AnyEvent, AttemptFinished, AttemptStarted, Message, Metrics, Rollout

START = 1.7e9


def make_run(team: Team, **fields: Any) -> Run:
    number = Run.objects.filter(team=team).count() + 1
    values = {"name": "r", "spec": {"recipe": "grpo"}, "recipe": "grpo", "trainer": "grpo", "task": "mini_gsm", "policy": "tiny", **fields}
    return Run.objects.create(team=team, number=number, **values)


def started(attempt: int = 1, from_step: int = 0, total_steps: int = 10, **fields: Any) -> AttemptStarted:
    values = {"pid": 1, "host": "h", "device": "cpu", "command": ["x"], "versions": {"trl": "1"}, **fields}
    return AttemptStarted(attempt=attempt, time=START, from_step=from_step, total_steps=total_steps, **values)


def rollout(step: int = 1, group: int = 0, sample: int = 0, attempt: int = 1, **fields: Any) -> Rollout:
    values: dict[str, Any] = {
        "phase": "train",
        "prompt": [Message("user", f"What is {step} + {group}?")],
        "reference": str(step + group),
        "completion": "<answer>7</answer>",
        "rewards": {"correct": 1.0, "format": None},
        "reward": 1.0,
        "finish_reason": "stop",
        "length": 4,
        "ids": arrays.pack_ids([1, 2, 3, 4]),
        "lengths": arrays.pack_array([1, 2, 3, 4], "H"),
        "logprobs": arrays.pack_array([-0.5, -0.25, -1.0, 0.0], "e"),
        "entropies": arrays.pack_array([0.5, 0.25, 1.0, 0.0], "e"),
        **fields,
    }
    return Rollout(attempt=attempt, time=START + step, step=step, group=group, sample=sample, **values)


def alternatives(count: int = 4, texts: tuple[str, ...] = ("the", "\n", "a")) -> dict[str, bytes]:
    """Fields of an event whose ``count`` tokens have two alternatives each, ids 1 and 3 with 50 % and 25 %, and a sampled token of rank 1, 2, 5 …"""
    return {
        "ranks": arrays.pack_ids([1, 2, *[5] * count][:count]),
        "alternative_ids": arrays.pack_ids([1, 3] * (count - 1) + [1, 2]),
        "alternative_logprobs": arrays.pack_array([-0.6931, -1.3863] * count, "e"),
        "alternative_texts": arrays.pack_texts([texts[0], texts[1], texts[2]]),
        "sampler_logprobs": arrays.pack_array([-0.75] * count, "f"),
    }


def measured(step: int, attempt: int = 1, **fields: Any) -> Metrics:
    values = {"values": {"loss": 1.0 / (step + 1), "reward": 0.1 * step}, "tokens": 100 * step, **fields}
    return Metrics(attempt=attempt, time=START + step, step=step, **values)


def steps(first: int, last: int, attempt: int = 1, groups: int = 2, samples: int = 4, answers: str = "7") -> list[AnyEvent]:
    """``answers``: a character for each sample of a group, from the start again where there are fewer."""
    events: list[AnyEvent] = []
    said = [f"<answer>{answers[sample % len(answers)]}</answer>" for sample in range(samples)]
    for step in range(first, last + 1):
        events += [rollout(step, group, sample, attempt, completion=said[sample]) for group in range(groups) for sample in range(samples)]
        events.append(measured(step, attempt))
    return events


def finished(attempt: int = 1, outcome: Any = "finished", step: int = 10, error: str = "") -> AttemptFinished:
    return AttemptFinished(attempt=attempt, time=START, outcome=outcome, step=step, error=error)


def write(folder: Path, events: list[AnyEvent], tail: bytes = b"") -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / spool.SPOOL).open("ab") as file:
        file.write(b"".join(spool.encoder.encode(event) + b"\n" for event in events) + tail)


def store(run: Run, *events: AnyEvent) -> None:
    """Spool and database: the product's own ingest until nothing is left."""
    write(run.folder, list(events))
    run.refresh_from_db()
    while ingest_spool(run):
        pass


def events_of(folder: Path) -> list[AnyEvent]:
    return [line.event for line in spool.read_spool_lines(folder / spool.SPOOL, 0, 1 << 40) if line.event is not None]


def current(events: list[AnyEvent]) -> list[AnyEvent]:
    """The events that count: without steps that a later attempt replayed."""
    limits: dict[int, int] = {}
    for event in events:
        if isinstance(event, AttemptStarted):
            limits = {number: min(last, event.from_step) for number, last in limits.items()} | {event.attempt: 2**31}
    return [event for event in events if not isinstance(event, Rollout | Metrics) or event.step <= limits.get(event.attempt, 2**31)]


def assert_database_equals_spool(run: Run) -> None:
    """Every rollout once, every metric point once, no more, and the run's counters agree with both."""
    run.refresh_from_db()
    events = events_of(run.folder)
    rollouts = [event for event in events if isinstance(event, Rollout)]
    stored = Stored.objects.filter(run=run)
    keys = Counter(stored.values_list("attempt", "step", "phase", "group", "sample"))
    assert keys == Counter((event.attempt, event.step, event.phase, event.group, event.sample) for event in rollouts)
    assert stored.filter(tokens__isnull=False).count() == len(rollouts)
    live = [event for event in current(events) if isinstance(event, Rollout)]
    assert stored.current().count() == len(live) == run.rollouts
    loss = {event.step: event.values["loss"] for event in current(events) if isinstance(event, Metrics) and "loss" in event.values}
    series = metrics.read_metric_series(run.pk).get("loss")
    assert (dict(zip(series.steps.tolist(), series.values.tolist(), strict=True)) if series else {}) == loss
    points = Counter((event.attempt, name) for event in events if isinstance(event, Metrics) for name in (*event.values, *event.nonfinite))
    chunks = run.chunks.exclude(name__startswith="@").exclude(name__startswith="system/")
    counted: Counter[tuple[int, str]] = Counter()
    for attempt, name, count in chunks.values_list("attempt", "name", "count"):
        counted[attempt, name] += count
    assert counted == points
    assert run.ingested == sum(len(line) + 1 for line in (run.folder / spool.SPOOL).read_bytes().split(b"\n")[:-1])
