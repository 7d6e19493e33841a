"""Putting the items nobody has seen yet in a new order, as labels come in. Served items keep their places, and so do gold ones."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

import numpy as np
from django.db import connection, transaction
from django.db.models import Count, F, Q
from django.utils import timezone

from lab.labelling.labels.disagreement import model_for
from lab.labelling.labels.models import Item, ItemState, Judgement, JudgementState, Ordering, Queue, QueueStatus, Strategy
from lab.labelling.labels.recipe import Recipe
from lab.labelling.labels.strategies import ItemFeatures, order_by_score, score_candidates
from lab.teams.accounts.models import Team

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
        judge_by = Recipe.stored(queue.selection, queue.kind, queue.strategy, queue.seed).judge_by
        described, runs = build_item_features(queue.team, [ids for _, _, ids in items], judge_by)
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


def build_item_features(team: Team, items: list[list[int]], judge_by: str) -> tuple[ItemFeatures, set[UUID]]:
    """Of each item's answer with the highest and the one with the lowest reward, and the runs they are from. The spread is that of an answer's group,
    the mean of the item's answers. NaN where a rollout is gone or has no reward.
    """
    of = np.repeat(np.arange(len(items)), [len(ids) for ids in items])
    rollouts = np.array([pk for ids in items for pk in ids], dtype=np.int64)
    rows = read_rollout_facts(team, set(rollouts.tolist()), judge_by)
    known = np.array([row[0] for row in rows], dtype=np.int64)
    facts = np.array([[np.nan if value is None else value for value in row[2:]] for row in rows] + [[np.nan] * 5], dtype=np.float64)
    at = np.searchsorted(known, rollouts)
    at = np.where((at < len(known)) & (known[np.minimum(at, len(known) - 1)] == rollouts), at, len(known)) if len(known) else np.zeros_like(rollouts)
    reward, length, entropy, spread, judge = facts[at].T
    ranked = np.lexsort((-reward, of))  # NaN last
    counted = np.bincount(of[~np.isnan(reward)], minlength=len(items))
    starts = np.searchsorted(of, np.arange(len(items)))
    best, worst = ranked[starts] if len(items) else ranked, ranked[starts + np.maximum(counted - 1, 0)] if len(items) else ranked
    size = np.maximum(np.bincount(of, minlength=len(items)), 1)
    features = ItemFeatures(
        gap=reward[best] - reward[worst],
        length=length[best] - length[worst],
        entropy_gap=entropy[best] - entropy[worst],
        entropy=np.bincount(of, entropy, len(items)) / size,
        spread=np.bincount(of, spread, len(items)) / size,
        judge=judge[best] - judge[worst],
    )
    return features, {row[1] for row in rows}


# Of each rollout: run, reward, tokens, entropy, the standard deviation of its group's rewards, and what the judge gave. The groups are read from
# an index that holds all they are asked for.
FACTS = """
WITH chosen AS (
  SELECT own.id, own.run_id, own.phase, own.step, own.group_index, own.reward, own.length, own.mean_entropy,
    CASE WHEN jsonb_typeof(own.rewards -> %(judge)s) = 'number' THEN (own.rewards ->> %(judge)s)::float8 END AS judge
  FROM trajectories_rollout own JOIN runs_run run ON run.id = own.run_id AND run.team_id = %(team)s WHERE own.id = ANY(%(ids)s)),
spreads AS (
  SELECT member.run_id, member.phase, member.step, member.group_index, stddev_pop(member.reward) AS spread
  FROM trajectories_rollout member JOIN (SELECT DISTINCT run_id, phase, step, group_index FROM chosen) asked USING (run_id, phase, step, group_index)
  WHERE NOT member.superseded GROUP BY 1, 2, 3, 4)
SELECT chosen.id, chosen.run_id, chosen.reward, chosen.length, chosen.mean_entropy, spreads.spread, chosen.judge
FROM chosen LEFT JOIN spreads USING (run_id, phase, step, group_index) ORDER BY chosen.id
"""


def read_rollout_facts(team: Team, rollouts: set[int], judge_by: str) -> list[tuple[Any, ...]]:
    """By id: (id, run, reward, tokens, entropy, spread, judge); None for what is not known. Those that are gone are missing."""
    with connection.cursor() as cursor:
        cursor.execute(FACTS, {"team": team.pk, "ids": list(rollouts), "judge": judge_by})
        return cursor.fetchall()


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
