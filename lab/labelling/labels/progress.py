"""How far a queue is."""

from __future__ import annotations

import time
from dataclasses import dataclass

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
    states, mine = count_states_and_mine(queue, user)
    total = sum(count for state, count in states.items() if state != ItemState.DROPPED)
    still_open = states.get(ItemState.OPEN, 0)
    return QueueProgress(total - still_open, total, states.get(ItemState.CONFLICT, 0), mine, still_open)


# Written out, as all that runs with every label.
STATES = "SELECT state, count(*) FROM labels_item WHERE queue_id = %(queue)s GROUP BY state"
MINE = "SELECT '', count(*) FROM labels_judgement WHERE queue_id = %(queue)s AND user_id = %(user)s AND state <> 'withdrawn'"


def count_states_and_mine(queue: Queue, user: User | None) -> tuple[dict[str, int], int]:
    """Items by state, and the person's labels: one query for both."""
    kept = _kept.get(queue.pk)
    current = kept is not None and time.monotonic() - kept[0] < KEPT
    if kept and not current:
        _kept[queue.pk] = (time.monotonic(), kept[1])  # one request counts anew, the others meanwhile say what was counted last
    parts = [*([] if current else [STATES]), *([MINE] if user else [])]
    counts = fetch_counts(" UNION ALL ".join(parts), queue.pk, user.pk if user else 0) if parts else {}
    mine = counts.pop("", 0)
    if kept and current:
        return kept[1], mine
    if sum(counts.values()) > LARGE:
        _kept[queue.pk] = (time.monotonic(), counts)
    else:
        _kept.pop(queue.pk, None)
    return counts, mine


def fetch_counts(sql: str, queue: int, user: int) -> dict[str, int]:
    with connection.cursor() as cursor:
        cursor.execute(sql, {"queue": queue, "user": user})
        return dict(cursor.fetchall())
