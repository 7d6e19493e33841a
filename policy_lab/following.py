"""A run while it trains: its new metric points and rollouts, each once, also after a break."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import groupby
from typing import TYPE_CHECKING

import msgspec

from policy_lab.records import Point, Rollout, Run, RunDetail, SeriesAnswer, Update
from trainers.outside.client import LabError

if TYPE_CHECKING:
    from policy_lab.lab import Lab


class Place(msgspec.Struct, array_like=True):
    """How far a run was read: ``cursor`` of its metrics, and of its rollouts those with an id up to ``known`` or of a step before ``step``.

    ``step`` begins anew with each ``attempt``: one that was resumed repeats steps.
    """

    cursor: int = 0
    known: int = 0
    step: int = 0
    newest: int = 0  # id among those read since ``known``
    attempt: int = 0

    def as_text(self) -> str:
        return msgspec.json.encode(self).decode()


def read_place(position: str) -> Place:
    """Raises LabError."""
    try:
        return msgspec.json.decode(position, type=Place) if position else Place()
    except msgspec.MsgspecError as error:
        raise LabError(f"position must be that of an update of this run; it is {position!r} ({error})") from None


def follow_run(lab: Lab, run_id: str, rollouts: bool, position: str, pause: float) -> Iterator[Update]:
    place, seen = read_place(position), None
    while True:
        run = lab.requests.fetch(f"/runs/{run_id}", RunDetail)
        state = (run.status, run.step, run.rollouts, run.tokens, run.attempt, run.phase)
        if state != seen:
            yield from read_news(lab, run, rollouts, place)
            seen = state
        if run.ended:
            return
        time.sleep(pause)


def read_news(lab: Lab, run: Run, rollouts: bool, place: Place) -> Iterator[Update]:
    """At least one update, and moves ``place``."""
    answer = lab.requests.fetch(f"/runs/{run.id}/series", SeriesAnswer, {"since": place.cursor, "points": 0})
    points: list[Point] = [point for series in answer.series for point in series.list_points()]
    place.cursor = answer.cursor
    yield Update(run, points, [], place.as_text())
    if not rollouts:
        return
    if place.newest > place.known:  # reading broke off between two steps
        yield from read_new_rollouts(lab, run, place)
    if run.attempt != place.attempt:
        place.attempt, place.step = run.attempt, 0
    yield from read_new_rollouts(lab, run, place)


def read_new_rollouts(lab: Lab, run: Run, place: Place) -> Iterator[Update]:
    for step, rows in list_new_steps(lab, run, place):
        place.newest, place.step = max(place.newest, *(row.id for row in rows)), step
        yield Update(run, [], rows, place.as_text())
    place.known = place.newest


def list_new_steps(lab: Lab, run: Run, place: Place) -> Iterator[tuple[int, list[Rollout]]]:
    """A run's rollouts are stored in the order of its spool, so that new ones have higher ids than all before."""
    found = lab.rollouts(run, [f"step:ge:{place.step}"], sort="step")
    known, first = place.known, place.step
    for step, rows in groupby(found, lambda row: row.step):
        # Of the step that reading goes on with, those that were read before a break are known by their ids.
        floor = max(known, place.newest) if step == first else known
        new = sorted((row for row in rows if row.id > floor), key=lambda row: row.id)
        if new:
            yield step, new
