"""Shadow rewards: columns that another process scores while the run trains. No step waits for them, and no gradient sees them.

Batches wait in a short queue for the child (``python -m trainers score``); what it cannot keep up with is left out, counted, and said so once. An
edit promotes a column (``trainers/contract/edits.py``): from then on the trainer scores it itself.
"""

import json
import logging
import os
import queue
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from trainers.attempt.context import Attempt
from trainers.attempt.telemetry import Scored
from trainers.contract.events import ShadowRewards, Warned
from trainers.contract.reward_definitions import SHADOW, RewardColumn
from trainers.rewards.columns import make_column_reward
from trainers.rewards.line_child import ChildFailed, ChildTimedOut, LineChild
from trainers.tasks.base import Example, Reward

log = logging.getLogger(__name__)

WAITING = 4  # generation batches that wait for the child
REQUEST_SECONDS = 600.0  # for a column's scores of a batch
PATIENCE = 5.0  # seconds past it until the child is killed
DRAIN_SECONDS = 30.0  # that the end of training waits for what is queued
ROWS = 2000  # of one request
MOST_SUMS = 1000
MOST_FAILURES = 5  # in a row, after which a column is given up
PHASE = "scoring shadows"


@dataclass(frozen=True)
class ShadowBatch:
    """A generation batch and the columns that were shadows while it was sampled."""

    columns: Sequence[RewardColumn]
    rows: Sequence[tuple[Scored, Example]]


class Shadows:
    """The shadow columns of an attempt. Without any, no process and no thread is started."""

    def __init__(self, columns: Sequence[RewardColumn], attempt: Attempt) -> None:
        self.attempt = attempt
        self.columns = {column.name: column for column in columns}
        environment = {**os.environ, "OMP_NUM_THREADS": str(torch.get_num_threads())}  # with other numbers of threads sums come out differently
        self.child = LineChild("trainers", "score", greets=False, environment=environment)
        self.waiting: queue.Queue[ShadowBatch | None] = queue.Queue(WAITING)
        self.thread: threading.Thread | None = None
        self.dropped, self.failures = 0, dict.fromkeys(self.columns, 0)
        self.sums: dict[tuple[str, int], tuple[float, int]] = {}  # (column, step) -> sum and number of its scores so far
        self.warned: set[str] = set()
        self.ended = threading.Event()

    @property
    def names(self) -> set[str]:
        return set(self.columns)

    def take(self, name: str) -> Reward:
        """The column as the trainer's own; it is no shadow any more."""
        column = self.columns[name]
        self.columns = {other: rest for other, rest in self.columns.items() if other != name}
        return make_column_reward(column, name)

    def offer(self, rows: Sequence[tuple[Scored, Example]]) -> None:
        """Hands a batch to the child's queue, or leaves it out where that is full. Never waits."""
        if self.thread is None:
            self.thread = threading.Thread(target=self.work, name="shadow rewards", daemon=True)
            self.thread.start()
        try:
            self.waiting.put_nowait(ShadowBatch(tuple(self.columns.values()), rows))
        except queue.Full:
            self.drop(len(rows))

    def drop(self, count: int) -> None:
        self.dropped += count
        self.warn("dropped", f"shadow rewards cannot keep up: {count} completions are left out, and more as it goes; their number is charted")

    def warn(self, once: str, message: str) -> None:
        if once not in self.warned:
            self.warned.add(once)
            log.warning("%s", message)
            self.attempt.reporter.event(Warned, message=message, step=0)

    def work(self) -> None:
        """The thread's: one batch after the other until None comes."""
        while (batch := self.waiting.get()) is not None:
            for column in batch.columns:
                if not self.ended.is_set() and self.failures[column.name] < MOST_FAILURES:
                    self.score(column, batch.rows)

    def score(self, column: RewardColumn, rows: Sequence[tuple[Scored, Example]]) -> None:
        try:
            answers = [self.ask(column, rows[start : start + ROWS]) for start in range(0, len(rows), ROWS)]
        except (ChildTimedOut, ChildFailed, ValueError, LookupError, TypeError) as error:
            if not self.ended.is_set():
                self.failures[column.name] += 1
                self.warn(f"failed {column.name}", f"the shadow reward {column.name!r} cannot be scored: {error}")
            return
        self.failures[column.name] = 0
        scores = [score for answer in answers for score in answer["scores"]]
        counted: dict[str, float] = {"seconds": sum(answer["seconds"] for answer in answers)}
        for answer in answers:
            counted |= {name: counted.get(name, 0.0) + value for name, value in answer["counted"].items()}
        if first := next((score["error"] for score in scores if score["error"]), ""):
            self.warn(f"error {column.name}", f"the shadow reward {column.name!r} failed on a completion: {first}")
        for step in sorted({scored.step for scored, _ in rows}):
            own = [(scored, score) for (scored, _), score in zip(rows, scores, strict=True) if scored.step == step]
            self.report(column, step, own, counted)

    def ask(self, column: RewardColumn, rows: Sequence[tuple[Scored, Example]]) -> dict[str, Any]:
        """The child's answer. Raises ChildTimedOut, ChildFailed, and ValueError with its refusal."""
        request = {
            "definition": column.definition.model_dump(),
            "rows": [
                {
                    "completion": scored.text if scored.answer is None else scored.answer,
                    "reference": example.reference,
                    "data": example.data,
                    "prompt": [{"role": message.role, "content": message.content} for message in example.prompt],
                }
                for scored, example in rows
            ],
            "seconds": REQUEST_SECONDS,
            "folder": str(self.attempt.folder),
            "device": self.attempt.spec.device,
        }
        answer: dict[str, Any] = json.loads(self.child.ask(json.dumps(request).encode() + b"\n", REQUEST_SECONDS + PATIENCE))
        if not answer["ok"]:
            raise ValueError("; ".join(f"{problem['field']}: {problem['message']}" for problem in answer["problems"]))
        return answer

    def report(self, column: RewardColumn, step: int, scores: Sequence[tuple[Scored, dict[str, Any]]], counted: dict[str, float]) -> None:
        name = f"{column.name}{SHADOW}"
        known = [score["value"] for _, score in scores if score["value"] is not None]
        total, number = self.sums.get((column.name, step), (0.0, 0))
        total, number = total + sum(known), number + len(known)
        self.sums[column.name, step] = total, number
        if len(self.sums) > MOST_SUMS:
            del self.sums[next(iter(self.sums))]
        values = {f"rewards/{name}/{what}": value for what, value in counted.items()}
        values[f"rewards/{name}/errors"] = float(sum(bool(score["error"]) for _, score in scores))
        values[f"rewards/{name}/dropped"] = float(self.dropped)
        if number:
            values[f"rewards/{name}/mean"] = total / number
        said = [(scored.group, scored.sample, score["value"]) for scored, score in scores]
        self.attempt.reporter.event(ShadowRewards, step=step, name=name, scores=said, values=values)

    def empty_queue(self) -> int:
        """Takes out what waits; returns how many completions that were."""
        left = 0
        while True:
            try:
                batch = self.waiting.get_nowait()
            except queue.Empty:
                return left
            left += 0 if batch is None else len(batch.rows)

    def close(self) -> None:
        """Waits a while for what is queued; the rest is left out. Training is over."""
        if self.thread is None:
            return
        self.attempt.reporter.phase(PHASE)
        end = time.monotonic() + DRAIN_SECONDS
        try:
            self.waiting.put(None, timeout=DRAIN_SECONDS)
            self.thread.join(max(0.0, end - time.monotonic()))
        except queue.Full:
            pass
        self.ended.set()
        if self.thread.is_alive():
            left = self.empty_queue()
            self.waiting.put(None)
            self.warn("end", f"training is over: shadow rewards of the last batches are left out ({left} completions and the batch in hand)")
            self.child.interrupt()
            self.thread.join(PATIENCE)
        self.child.close()
        self.thread = None
