"""Gold items asked again: the same question with its known answer, later in its queue or in a later one.

Its answers come from the policy of then. Whoever answers it differently now has changed, not the model: ``quality.drift`` reads it that way. A
repeat goes first to the people who answered the original (``item_claims``), and its labels never become rows of a dataset.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

import numpy as np
from django.db import transaction
from django.db.models import Count, Exists, Max, OuterRef, QuerySet

from lab.labelling.labels.models import Item, ItemState, Judgement, Queue, Verdict
from lab.labelling.labels.new_queues import NewItem, add_items
from lab.rollouts.trajectories.models import Rollout
from lab.teams.accounts.models import Team
from lab.teams.audit.recording import record_audit_entry

LOOKED_AT = 5_000  # answered gold items, the longest ago first


def list_answered_gold(team: Team, kind: str, source: int | None = None) -> QuerySet[Item]:
    """Gold items of the team's queues of this kind that somebody has answered; of the queue ``source`` only where it is given."""
    answers = Judgement.objects.filter(item=OuterRef("pk"), queue__team=team).counting().exclude(verdict=Verdict.SKIP)
    items = Item.objects.filter(Exists(answers), queue__team=team, queue__kind=kind, gold__isnull=False, repeats=None, texts__isnull=True)
    return items if source is None else items.filter(queue=source)


def list_gold_sources(team: Team) -> list[Queue]:
    """Queues with answered gold items, newest first."""
    answers = Judgement.objects.filter(queue=OuterRef("pk"), item__gold__isnull=False, item__repeats=None).counting().exclude(verdict=Verdict.SKIP)
    return list(Queue.objects.of(team).filter(Exists(answers)).order_by("-pk")[:100])


def select_gold_to_repeat(team: Team, kind: str, count: int, source: int | None = None, into: Queue | None = None) -> list[NewItem]:
    """At most ``count`` items without a place: least often repeated first, then those answered longest ago.

    Left out are items whose answers are gone and, of the queue ``into``, those that already wait there to be asked again.
    """
    if not count:
        return []
    known = list_answered_gold(team, kind, source)
    if into is not None:
        known = known.exclude(Exists(Item.objects.filter(queue=into, repeats=OuterRef("pk"), state=ItemState.OPEN)))
    known = known.annotate(times=Count("repeated", distinct=True), last=Max("judgements__created_at")).order_by("times", "last", "pk")
    rows = list(known.values_list("pk", "prompt_id", "rollouts", "gold")[: max(count, LOOKED_AT)])
    stored = set(Rollout.objects.filter(run__team=team, pk__in={pk for row in rows for pk in row[2]}).values_list("pk", flat=True))
    whole = (row for row in rows if stored.issuperset(row[2]))
    return [NewItem(prompt, tuple(rollouts), gold=gold, repeats=pk) for (pk, prompt, rollouts, gold), _ in zip(whole, range(count), strict=False)]


def spread_over(count: int, length: int, seed: int) -> list[float]:
    """``count`` places among ``length`` others, one at random in each of as many equal stretches, so that their place tells nothing."""
    rng = np.random.default_rng(seed)
    stretch = max(1, length) / max(1, count)
    return [(index + float(rng.random())) * stretch for index in range(count)]


def mix_repeats(items: list[NewItem], repeats: list[NewItem], seed: int) -> list[NewItem]:
    """All in the order they are served; ``items`` keep their order."""
    rows = [(float(index), item) for index, item in enumerate(items)]
    rows += zip(spread_over(len(repeats), len(items), seed), repeats, strict=True)
    rows.sort(key=lambda row: row[0])
    return [replace(item, place=float(index)) for index, (_, item) in enumerate(rows)]


def repeat_gold(queue: Queue, count: int, source: int | None, now: datetime) -> int:
    """Puts up to ``count`` answered gold items among those of the queue that still wait for labels; how many were added."""
    with transaction.atomic():
        Queue.objects.select_for_update(no_key=True).same_row(queue).get()
        repeats = select_gold_to_repeat(queue.team, queue.kind, count, source, queue)
        waiting = list(queue.items.filter(state=ItemState.OPEN, room__gt=0).order_by("place", "pk").values_list("place", flat=True))
        newest = queue.items.aggregate(newest=Max("place"))["newest"] or 0.0
        waiting.append(max([newest, *waiting]) + 1)
        chances = spread_over(len(repeats), len(waiting) - 1, int(now.timestamp()))
        places = [(waiting[int(at)] + waiting[min(int(at) + 1, len(waiting) - 1)]) / 2 for at in chances]
        added = add_items(queue, [replace(item, place=place) for item, place in zip(repeats, places, strict=True)])
        if added:
            record_audit_entry("queue.change", queue, gold_repeated=added)
    return added
