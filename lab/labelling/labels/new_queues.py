"""Making a queue and putting items into it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import count
from typing import Any

from django.db import connection, transaction
from django.db.models import Max

from lab.labelling.labels.models import ROLLOUTS, ItemState, Kind, Queue
from lab.teams.accounts.models import Team, User
from lab.teams.audit.recording import record_audit_entry


@dataclass(frozen=True)
class NewItem:
    """``place``: served in this order; None puts it after all others. ``texts`` stand in for rollouts that are not stored yet."""

    prompt: int
    rollouts: tuple[int, ...] = ()
    texts: tuple[str, ...] | None = None
    place: float | None = None
    gold: dict[str, Any] | None = None
    repeats: int | None = None  # the gold item that is asked again


def make_queue(team: Team, user: User | None, *, name: str, kind: Kind, items: Iterable[NewItem] = (), **settings: Any) -> Queue:
    """All of it or nothing. ``settings`` are fields of Queue."""
    with transaction.atomic():
        queue = Queue.objects.create(team=team, created_by=user, name=name, kind=kind, **settings)
        added = add_items(queue, items)
        record_audit_entry("queue.create", queue, actor=user, kind=str(queue.kind), purpose=str(queue.purpose), items=added)
    return queue


COLUMNS = "queue_id, place, prompt_id, rollouts, texts, room, labels, state, gold, repeats_id, final_comment"


def add_items(queue: Queue, items: Iterable[NewItem]) -> int:
    """How many were added. Raises ValueError for an item with a number of answers that the queue's kind does not have.

    By COPY: a queue may get 100,000 items at once, which takes seconds this way and a minute as rows of INSERT.
    """
    least, most = ROLLOUTS[Kind(queue.kind)]
    newest = queue.items.aggregate(newest=Max("place"))["newest"]
    after = count(1 if newest is None else int(newest) + 1)
    added = 0
    with transaction.atomic(), connection.cursor() as cursor, cursor.copy(f"COPY labels_item ({COLUMNS}) FROM STDIN") as copy:
        for item in items:
            size = len(item.rollouts if item.texts is None else item.texts)
            if not least <= size <= most:
                raise ValueError(f"an item of a {queue.kind} queue has {least} to {most} answers, not {size}")
            position = float(next(after)) if item.place is None else item.place
            rollouts = "{" + ",".join(map(str, item.rollouts)) + "}"
            texts, gold = (None if value is None else json.dumps(value) for value in (item.texts, item.gold))
            copy.write_row((queue.pk, position, item.prompt, rollouts, texts, queue.overlap, 0, ItemState.OPEN.value, gold, item.repeats, ""))
            added += 1
    return added
