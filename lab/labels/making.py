"""Making a queue and putting items into it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import count
from typing import Any

from django.db import transaction
from django.db.models import Max

from lab.accounts.models import Team, User
from lab.browse.pages import batched
from lab.labels.models import ROLLOUTS, Item, Kind, Queue

BATCH = 2000


@dataclass(frozen=True)
class NewItem:
    """``place``: served in this order; None puts it after all others. ``texts`` stand in for rollouts that are not stored yet."""

    prompt: int
    rollouts: tuple[int, ...] = ()
    texts: tuple[str, ...] | None = None
    place: float | None = None
    gold: dict[str, Any] | None = None


def make_queue(team: Team, user: User | None, *, name: str, kind: Kind, items: Iterable[NewItem] = (), **settings: Any) -> Queue:
    """All of it or nothing. ``settings`` are fields of Queue."""
    with transaction.atomic():
        queue = Queue.objects.create(team=team, created_by=user, name=name, kind=kind, **settings)
        add_items(queue, items)
    return queue


def add_items(queue: Queue, items: Iterable[NewItem]) -> int:
    """How many were added. Raises ValueError for an item with a number of answers that the queue's kind does not have."""
    least, most = ROLLOUTS[Kind(queue.kind)]
    newest = queue.items.aggregate(newest=Max("place"))["newest"]
    after = count(1 if newest is None else int(newest) + 1)
    added = 0
    for batch in batched(items, BATCH):
        rows = []
        for item in batch:
            size = len(item.rollouts if item.texts is None else item.texts)
            if not least <= size <= most:
                raise ValueError(f"an item of a {queue.kind} queue has {least} to {most} answers, not {size}")
            place = float(next(after)) if item.place is None else item.place
            texts = None if item.texts is None else list(item.texts)
            rows.append(
                Item(queue=queue, place=place, prompt_id=item.prompt, rollouts=list(item.rollouts), texts=texts, room=queue.overlap, gold=item.gold)
            )
        Item.objects.bulk_create(rows)
        added += len(rows)
    return added
