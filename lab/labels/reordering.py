"""Putting the items nobody has seen yet in a new order, as labels come in. Served items keep their places, and so do gold ones."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

import numpy as np
from django.db import connection, transaction
from django.db.models import Count, F, Q
from django.utils import timezone

from lab.labels.disagreement import model_for
from lab.labels.models import Item, ItemState, Judgement, JudgementState, Ordering, Queue, QueueStatus, Strategy
from lab.labels.strategies import Array, Features, order, scores
from lab.trajectories.models import Rollout

EVERY = 50  # labels between two orders
AT_ONCE = 5  # queues of one round
LOCK = 5_700_000_000_000  # with the queue's id: one at a time

PLACES = "UPDATE labels_item SET place = given.place FROM unnest(%s::bigint[], %s::float8[]) AS given(id, place) WHERE labels_item.id = given.id"


def reorder(queue: Queue) -> Ordering:
    """Of a disagreement-first queue; two calls at the same moment come one after the other. Rows that somebody claims meanwhile are left alone."""
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_xact_lock(%s)", [LOCK + queue.pk])
        items = list(
            Item.objects.filter(queue=queue, state=ItemState.OPEN, room=queue.overlap, gold__isnull=True, texts__isnull=True)
            .order_by("place", "pk")
            .select_for_update(skip_locked=True)
            .values_list("pk", "place", "rollouts")
        )
        rollouts = rollouts_of([pk for _, _, ids in items for pk in ids])
        model = model_for(queue.team, {run for run, *_ in rollouts.values() if run})
        found = order(scores(queue.strategy, features(items, rollouts), queue.seed, model), queue.seed)
        places = [place for _, place, _ in items]
        now = [items[at][0] for at in found.tolist()]
        moved = sum(pk != items[at][0] for at, pk in enumerate(now))
        if moved:
            with connection.cursor() as cursor:
                cursor.execute(PLACES, [now, places])
        values = {"labels": labels_of(queue), "votes": model.votes if model else 0, "moved": moved}
        return Ordering.objects.update_or_create(queue=queue, defaults=values)[0]


Facts = tuple[UUID | None, float, float, float]  # run, reward, length, mean entropy; NaN where there is none


def rollouts_of(ids: list[int]) -> dict[int, Facts]:
    rows = Rollout.objects.filter(pk__in=set(ids)).values_list("pk", "run_id", "reward", "length", "mean_entropy")
    return {pk: (run, real(reward), real(length), real(entropy)) for pk, run, reward, length, entropy in rows}


def real(value: float | None) -> float:
    return np.nan if value is None else float(value)


def features(items: list[tuple[int, float, list[int]]], rollouts: dict[int, Facts]) -> Features:
    """Of each item's answer with the highest and the one with the lowest reward. The spread is of the item's own answers: its group is not read."""
    gone: Facts = (None, np.nan, np.nan, np.nan)
    rows = np.empty((len(items), 5))
    for at, (_, _, ids) in enumerate(items):
        known = [rollouts.get(pk, gone)[1:] for pk in ids]
        ranked = sorted((one for one in known if one[0] == one[0]), key=lambda one: -one[0])
        best, worst = (ranked[0], ranked[-1]) if ranked else (gone[1:], gone[1:])
        entropy = float(np.mean([one[2] for one in known])) if known else np.nan
        spread = float(np.std([one[0] for one in ranked])) if ranked else np.nan
        rows[at] = (best[0] - worst[0], best[1] - worst[1], best[2] - worst[2], entropy, spread)
    columns: list[Array] = [rows[:, at] for at in range(5)]
    return Features(*columns)


def labels_of(queue: Queue) -> int:
    return Judgement.objects.filter(queue=queue).exclude(state=JudgementState.WITHDRAWN).count()


def reorder_grown() -> int:
    """Orders every open disagreement-first queue that has EVERY labels more than when it was last ordered; how many there were."""
    labels = Count("judgements", filter=~Q(judgements__state=JudgementState.WITHDRAWN))
    queues = Queue.objects.filter(strategy=Strategy.DISAGREEMENT, status=QueueStatus.OPEN).annotate(now=labels)
    fresh = Q(ordering=None, now__gte=EVERY) | Q(now__gte=F("ordering__labels") + EVERY, ordering__at__lt=timezone.now() - timedelta(seconds=10))
    grown = list(queues.filter(fresh).order_by("pk")[:AT_ONCE])
    for queue in grown:
        reorder(queue)
    return len(grown)
