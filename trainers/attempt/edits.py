"""Edits of the running run, once a step: what was asked for is checked, written down, applied and reported, each exactly once.

Between two optimiser steps the trainer reads the new lines of ``edits/requests.jsonl``. What holds from the coming step is first made durable in
``edits/applied.jsonl``, then applied and reported. A resumed attempt reads that record: what held at its checkpoint holds from the start, what was
applied after it is applied at the same step again. Requests that nobody has recorded wait until the steps that were done before are done again.
"""

import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from pydantic import ValidationError

from trainers.attempt.report import Reporter
from trainers.catalog.entries import entries_for
from trainers.contract.edits import (
    APPLIED,
    REQUESTS,
    WITHDRAWN,
    AppliedEdit,
    EditRequest,
    TaskOffer,
    Values,
    find_edit_problems,
    holds_from_step,
    list_editable_settings,
)
from trainers.contract.events import Edited
from trainers.contract.new_lines import NewLines
from trainers.contract.spec import RunSpec
from trainers.contract.spool import SPOOL, cut_torn_tail, last_reported_step
from trainers.tasks.base import Task

log = logging.getLogger(__name__)


class Changeable(Protocol):
    """A trainer whose settings can be changed between two steps."""

    def at_boundary(self) -> bool:
        """Whether the coming step begins a generation batch."""

    def change_settings(self, changes: Mapping[str, float]) -> None: ...


class Edits:
    """The edits of one run folder, as this attempt sees them. Made before the attempt writes its first event."""

    def __init__(self, folder: Path, spec: RunSpec, task: Task, reporter: Reporter) -> None:
        self.spec, self.reporter, self.record = spec, reporter, folder / APPLIED
        weights = {name: reward.weight for name, reward in task.rewards.items()} | {column.name: 0.0 for column in task.shadows}
        offer = TaskOffer(weights, list(task.difficulties))
        hooks = {name: entry["hooks"] for name, entry in entries_for(spec).items()}
        self.settings = list_editable_settings(spec, offer, hooks)
        self.current: Values = dict(self.settings.launched)
        self.requests = NewLines(folder / REQUESTS)
        self.requests.path.parent.mkdir(parents=True, exist_ok=True)  # so that anybody can append to it
        cut_torn_tail(self.record)
        self.recorded = read_applied_edits(self.record)
        self.scheduled = list(self.recorded)  # of the record, what this attempt has still to apply
        self.waiting: dict[str, Values] = {}  # key -> settings that do not hold yet
        self.done_before = last_reported_step(folder / SPOOL)

    def begin_step(self, step: int, trainer: Changeable) -> None:
        """Before optimiser step ``step`` (1-based): changes what holds from it."""
        self.read_requests()
        for edit in [edit for edit in self.scheduled if edit.step <= step]:
            self.scheduled.remove(edit)
            if edit.refused:  # whether the event that said so reached the disk is not known
                self.reporter.event(Edited, key=edit.key, step=edit.step, refused=edit.refused)
            else:
                self.apply(edit, trainer, report=edit.step == step)
        if step > self.done_before:
            for key in list(self.waiting):
                self.begin_waiting(key, step, trainer)

    def read_requests(self) -> None:
        for line in self.requests.read():
            try:
                request = EditRequest.model_validate_json(line)
            except ValidationError as error:
                log.warning("%s: %r is no edit: %s", REQUESTS, line[:80], error.errors(include_url=False)[0]["msg"])
                continue
            known = [edit for edit in self.recorded if edit.key == request.key]
            if request.withdrawn:
                if request.key in self.waiting and not known:
                    del self.waiting[request.key]
                    self.refuse(request.key, WITHDRAWN)
            elif request.key not in self.waiting and not any(edit.refused for edit in known):
                held = {name for edit in known for name in edit.changes}
                if left := {name: value for name, value in request.changes.items() if name not in held}:
                    self.waiting[request.key] = left

    def begin_waiting(self, key: str, step: int, trainer: Changeable) -> None:
        """Applies what of the edit can hold from this step; refuses the edit when it cannot be."""
        changes = self.waiting[key]
        if problems := find_edit_problems(self.spec, self.settings, self.current, changes):
            del self.waiting[key]
            self.refuse(key, "; ".join(map(str, problems)), step)
            return
        ready = {name: value for name, value in changes.items() if holds_from_step(name) or trainer.at_boundary()}
        if not ready:
            return
        if len(ready) == len(changes):
            del self.waiting[key]
        else:
            self.waiting[key] = {name: value for name, value in changes.items() if name not in ready}
        edit = AppliedEdit(key=key, step=step, changes=ready)
        self.write(edit)
        self.apply(edit, trainer, report=True)

    def refuse(self, key: str, why: str, step: int = 0) -> None:
        log.warning("edit %s: %s", key, why)
        self.write(AppliedEdit(key=key, step=step, changes={}, refused=why))
        self.reporter.event(Edited, key=key, step=step, refused=why)

    def apply(self, edit: AppliedEdit, trainer: Changeable, *, report: bool) -> None:
        before = {name: self.current[name] for name in edit.changes if name in self.current}
        self.current |= edit.changes
        trainer.change_settings(edit.changes)
        words = ", ".join(f"{name} {before.get(name)} -> {value}" for name, value in edit.changes.items())
        log.info("edit %s holds from step %d: %s", edit.key, edit.step, words)
        if report:
            self.reporter.event(Edited, key=edit.key, step=edit.step, changes=edit.changes, before=before)

    def write(self, edit: AppliedEdit) -> None:
        """Durable before anything follows from it."""
        self.recorded.append(edit)
        handle = os.open(self.record, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            os.write(handle, edit.model_dump_json().encode() + b"\n")
            os.fsync(handle)
        finally:
            os.close(handle)


def read_applied_edits(path: Path) -> list[AppliedEdit]:
    """What was done with the edits of a run folder, in that order. Raises pydantic.ValidationError for a record that is not the trainer's."""
    return [AppliedEdit.model_validate_json(line) for line in NewLines(path).read()]
