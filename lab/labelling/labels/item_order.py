"""Putting the items nobody has seen yet in a new order, as labels come in. Served items keep their places, and so do gold ones."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

import numpy as np
from django.db import connection, transaction
from django.db.models import Count, F, Q
from django.utils import timezone

from lab.labelling.labels.disagreement import model_for
from lab.labelling.labels.models import Item, ItemState, Judgement, JudgementState, Ordering, Queue, QueueStatus, Strategy
from lab.labelling.labels.strategies import ItemFeatures, order_by_score, score_candidates
from lab.rollouts.trajectories.models import Rollout

EVERY = 50  # labels between two orders
AT_ONCE = 5  # queues of one round
LOCK = 5_700_000_000_000  # with the queue's id: one at a time

FRONT = 2000  # items that are put in front; the rest follows when it is ordered again, long before anybody gets there

# What somebody took meanwhile keeps its place, and what somebody works on at this moment is not waited for.
PLACES = """
WITH free AS (
  SELECT item.id, given.place FROM labels_item item JOIN unnest(%s::bigint[], %s::float8[]) AS given(id, place) ON item.id = given.id
  WHERE item.state = 'open' AND item.room = %s FOR UPDATE OF item SKIP LOCKED)
UPDATE labels_item SET place = free.place FROM free WHERE labels_item.id = free.id
"""


def reorder_unseen_items(queue: Queue) -> Ordering:
    """Of a disagreement-first queue; two calls at the same moment come one after the other. Nobody who looks for work waits for it: items are
    locked only while the new places are written, and at most 2 FRONT of them.
    """
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s)", [LOCK + queue.pk])
        free = Item.objects.filter(queue=queue, state=ItemState.OPEN, room=queue.overlap, gold__isnull=True, texts__isnull=True)
        items = list(free.order_by("place", "pk").values_list("pk", "place", "rollouts"))
        described, runs = build_item_features([ids for _, _, ids in items])
        model = model_for(queue.team, runs)
        best = order_by_score(score_candidates(queue.strategy, described, queue.seed, model), queue.seed).tolist()
        moves = to_front(best[:FRONT])
        cursor.execute(PLACES, [[items[at][0] for at in moves], [items[to][1] for to in moves.values()], queue.overlap])
        values = {"labels": labels_of(queue), "votes": model.votes if model else 0, "moved": len(moves)}
        return Ordering.objects.update_or_create(queue=queue, defaults=values)[0]


def to_front(best: list[int]) -> dict[int, int]:
    """Who goes where, in places of the list: ``best`` to its front, in this order; those that stood there to where the best came from."""
    chosen = set(best)
    pushed = [at for at in range(len(best)) if at not in chosen]
    vacated = sorted(at for at in best if at >= len(best))
    moves = {at: to for to, at in enumerate(best)} | dict(zip(pushed, vacated, strict=True))
    return {at: to for at, to in moves.items() if at != to}


def build_item_features(items: list[list[int]]) -> tuple[ItemFeatures, set[UUID]]:
    """Of each item's answer with the highest and the one with the lowest reward, and the runs they are from. The spread is of the item's own answers:
    its group is not read again. NaN where a rollout is gone or has no reward.
    """
    of = np.repeat(np.arange(len(items)), [len(ids) for ids in items])
    rollouts = np.array([pk for ids in items for pk in ids], dtype=np.int64)
    rows = list(
        Rollout.across_teams.filter(pk__in=set(rollouts.tolist())).order_by("pk").values_list("pk", "run_id", "reward", "length", "mean_entropy")
    )
    known = np.array([row[0] for row in rows], dtype=np.int64)
    facts = np.array([[np.nan if value is None else value for value in row[2:]] for row in rows] + [[np.nan] * 3], dtype=np.float64)
    at = np.searchsorted(known, rollouts)
    at = np.where((at < len(known)) & (known[np.minimum(at, len(known) - 1)] == rollouts), at, len(known)) if len(known) else np.zeros_like(rollouts)
    reward, length, entropy = facts[at].T
    ranked = np.lexsort((-reward, of))  # NaN last
    counted = np.bincount(of[~np.isnan(reward)], minlength=len(items))
    starts = np.searchsorted(of, np.arange(len(items)))
    best, worst = ranked[starts] if len(items) else ranked, ranked[starts + np.maximum(counted - 1, 0)] if len(items) else ranked
    mean = np.bincount(of, np.nan_to_num(reward), len(items)) / np.maximum(counted, 1)
    square = np.bincount(of, np.where(np.isnan(reward), 0, (reward - mean[of]) ** 2), len(items)) / np.maximum(counted, 1)
    mean_entropy = np.bincount(of, entropy, len(items)) / np.maximum(np.bincount(of, minlength=len(items)), 1)
    features = ItemFeatures(reward[best] - reward[worst], length[best] - length[worst], entropy[best] - entropy[worst], mean_entropy, np.sqrt(square))
    return features, {row[1] for row in rows}


def labels_of(queue: Queue) -> int:
    return Judgement.objects.filter(queue=queue).exclude(state=JudgementState.WITHDRAWN).count()


def reorder_grown() -> int:
    """Orders every open disagreement-first queue that has EVERY labels more than when it was last ordered; how many there were."""
    labels = Count("judgements", filter=~Q(judgements__state=JudgementState.WITHDRAWN))
    queues = Queue.across_teams.filter(strategy=Strategy.DISAGREEMENT, status=QueueStatus.OPEN).annotate(now=labels)
    fresh = Q(ordering=None, now__gte=EVERY) | Q(now__gte=F("ordering__labels") + EVERY, ordering__at__lt=timezone.now() - timedelta(seconds=10))
    grown = list(queues.filter(fresh).order_by("pk")[:AT_ONCE])
    for queue in grown:
        reorder_unseen_items(queue)
    return len(grown)
