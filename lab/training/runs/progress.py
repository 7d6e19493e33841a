"""Runs followed in a terminal, from the database: a bar a run on a terminal, a plain line every tenth elsewhere (a log, a pipe)."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from uuid import UUID

from django.db import DatabaseError, connection
from django.utils import timezone
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn
from rich.table import Column

from lab.training.runs.models import Run, Status
from lab.training.workers.models import Worker

POLL_SECONDS = 0.5
PLAIN_PARTS = 10  # lines a run gets where there is no terminal, besides its beginning and its end
SILENT_SECONDS = 8.0  # after this long without a line, one says how far a phase before, between or after the steps is
WAIT_SECONDS = 8.0  # how long a queued run may wait before the reason is told
ENDED = (Status.FINISHED, Status.STOPPED, Status.FAILED)


def follow_runs(run_ids: Sequence[UUID], console: Console, watch: Callable[[], None] = lambda: None) -> list[Run]:
    """Shows the runs until all have ended or cannot start any more, and returns them as they are then.

    ``watch`` is called at every look and may raise to end the following. A database that is away is waited for.
    """
    show = ProgressBars(console) if console.is_terminal else ProgressLines(console)
    waiting_since = time.monotonic()
    with show:
        while True:
            watch()
            runs = read_followed_runs(run_ids)
            if runs:
                show.update(runs)
                if all(is_over(run, runs) for run in runs):
                    return runs
                if any(run.is_active for run in runs):
                    waiting_since = time.monotonic()
                elif time.monotonic() - waiting_since > WAIT_SECONDS:
                    show.say(why_waiting(runs))
                    waiting_since = float("inf")
            time.sleep(POLL_SECONDS)


def read_followed_runs(run_ids: Sequence[UUID]) -> list[Run]:
    """The runs in the order given; none when the database is away."""
    try:
        runs = Run.across_teams.in_bulk(list(run_ids))
    except DatabaseError:
        connection.close()
        return []
    return [runs[run_id] for run_id in run_ids]


def is_over(run: Run, runs: Sequence[Run]) -> bool:
    """Ended, or queued behind a run that ended without finishing."""
    if run.status in ENDED:
        return True
    parent = next((other for other in runs if other.pk == run.parent_id), None)
    return parent is not None and parent.status != Status.FINISHED and is_over(parent, runs)


def why_waiting(runs: Sequence[Run]) -> str:
    run = next(run for run in runs if not run.is_active and run.status not in ENDED)
    try:
        serving = [worker for worker in Worker.objects.taking_runs() if run.queue in worker.queues]
    except DatabaseError:
        return "the database does not answer"
    if not serving:
        return f"{run} waits: no worker serves the queue {run.queue}. Start one: .venv/bin/python manage.py worker --queues {run.queue}"
    return f"{run} waits: {len(serving)} worker{'s' if len(serving) > 1 else ''} for the queue {run.queue}, busy or starting"


def describe_progress(run: Run) -> str:
    """What the run does now, with its reward of the last step and its held-out reward of the last evaluation."""
    phase = run.phase if run.is_active and run.phase else run.status
    if run.phase_total and run.is_active and run.phase != "training":
        phase += f" {run.phase_done}/{run.phase_total}"
    numbers = [
        f"{label} {run.latest[key]:.3f}" for key, label in (("reward", "reward"), ("heldout", "held-out reward")) if run.latest.get(key) is not None
    ]
    return "  ".join([phase, *numbers])


def format_elapsed_time(run: Run) -> str:
    """Minutes and seconds since the run first started, until it ended."""
    if run.started_at is None:
        return "-:--"
    seconds = int(((run.finished_at or timezone.now()) - run.started_at).total_seconds())
    return f"{seconds // 60}:{seconds % 60:02d}"


class ProgressBars:
    def __init__(self, console: Console) -> None:
        self.bars: dict[UUID, TaskID] = {}
        self.progress = Progress(
            TextColumn("{task.description}", markup=False, table_column=Column(no_wrap=True)),
            BarColumn(bar_width=max(8, min(30, console.width - 72))),
            MofNCompleteColumn(),
            TextColumn("{task.fields[elapsed]}", markup=False, table_column=Column(no_wrap=True, min_width=5)),
            TextColumn("{task.fields[doing]}", markup=False),
            console=console,
        )

    def __enter__(self) -> ProgressBars:
        self.progress.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.progress.stop()

    def update(self, runs: Sequence[Run]) -> None:
        for run in runs:
            if run.pk not in self.bars:
                self.bars[run.pk] = self.progress.add_task(str(run), total=run.total_steps, doing="", elapsed="")
            self.progress.update(
                self.bars[run.pk], completed=run.step, total=run.total_steps, doing=describe_progress(run), elapsed=format_elapsed_time(run)
            )

    def say(self, text: str) -> None:
        self.progress.console.print(text, markup=False, highlight=False)


class ProgressLines:
    def __init__(self, console: Console) -> None:
        self.console = console
        self.told: dict[UUID, tuple[int, str]] = {}
        self.said_at = time.monotonic()

    def __enter__(self) -> ProgressLines:
        return self

    def __exit__(self, *exc: object) -> None:
        pass

    def update(self, runs: Sequence[Run]) -> None:
        for run in runs:
            part = run.step * PLAIN_PARTS // run.total_steps if run.total_steps else 0
            news = (part, run.status)
            if news != self.told.get(run.pk) or (self.silent_too_long() and run.is_active and run.phase != "training"):
                self.told[run.pk] = news
                self.say(f"{run}: step {run.step}/{run.total_steps}  {describe_progress(run)}")

    def silent_too_long(self) -> bool:
        return time.monotonic() - self.said_at > SILENT_SECONDS

    def say(self, text: str) -> None:
        self.said_at = time.monotonic()
        self.console.print(text, markup=False, highlight=False, soft_wrap=True)
