"""How far a queue is."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from django.db import connection

from lab.labelling.labels.models import ItemState, Queue
from lab.teams.accounts.models import User

LARGE = 5_000  # items from which the count is kept
KEPT = 2.0  # seconds

_kept: dict[int, tuple[float, dict[str, int]]] = {}


@dataclass(frozen=True)
class QueueProgress:
    """In items: ``done`` have all their labels or were decided, ``conflicts`` of them wait for a decision, ``open`` want labels; dropped ones are
    left out. ``mine`` counts the person's labels and skips.
    """

    done: int
    total: int
    conflicts: int
    mine: int
    open: int


def count_queue_progress(queue: Queue, user: User | None = None) -> QueueProgress:
    """Of a queue with more than LARGE items the counts may be KEPT seconds old: counting 100,000 takes longer than recording a label."""
    states = states_of(queue)
    total = sum(count for state, count in states.items() if state != ItemState.DROPPED)
    still_open = states.get(ItemState.OPEN, 0)
    mine = fetch_count_rows(MINE, queue.pk, user.pk)[0][0] if user else 0
    return QueueProgress(total - still_open, total, states.get(ItemState.CONFLICT, 0), mine, still_open)


# Written out, as all that runs with every label.
STATES = "SELECT state, count(*) FROM labels_item WHERE queue_id = %s GROUP BY state"
MINE = "SELECT count(*) FROM labels_judgement WHERE queue_id = %s AND user_id = %s AND state <> 'withdrawn'"


def fetch_count_rows(sql: str, *values: int) -> list[Any]:
    with connection.cursor() as cursor:
        cursor.execute(sql, values)
        return list(cursor.fetchall())


def states_of(queue: Queue) -> dict[str, int]:
    kept = _kept.get(queue.pk)
    if kept and time.monotonic() - kept[0] < KEPT:
        return kept[1]
    if kept:
        _kept[queue.pk] = (time.monotonic(), kept[1])  # one request counts anew, the others meanwhile say what was counted last
    states: dict[str, int] = dict(fetch_count_rows(STATES, queue.pk))
    if sum(states.values()) > LARGE:
        _kept[queue.pk] = (time.monotonic(), states)
    else:
        _kept.pop(queue.pk, None)
    return states
