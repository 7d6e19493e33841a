"""What is known of each labeller of a queue: pace, agreement with gold and with the others, and habits such as a preferred side."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

import numpy as np
from django.db.models import Aggregate, Count, FloatField, Q

from lab.labelling.labels.models import Judgement, Kind, Queue, QueueMember, Verdict
from lab.labelling.labels.outcome import is_gold_match
from lab.labelling.quality.proportions import Proportion, estimate_share
from lab.labelling.quality.ratings import RatingTable
from lab.teams.accounts.models import User

HASTE = 0.1  # of the queue's median time
ENOUGH = 10  # labels before haste is spoken of


class Median(Aggregate):
    function = "PERCENTILE_CONT"
    template = "%(function)s(0.5) WITHIN GROUP (ORDER BY %(expressions)s)"
    output_field = FloatField()


@dataclass(frozen=True)
class GoldAnswer:
    """One judgement of an item whose answer is known."""

    user: int
    right: bool
    order: int  # id of the judgement: in order of time
    rollouts: tuple[int, ...]
    repeats: bool = False  # the item had been asked before


@dataclass(frozen=True)
class Labeller:
    """Labels are those that count, without skips. ``left``: how often the answer shown first was chosen, of those times one was chosen."""

    user: User
    labels: int
    seconds: float | None  # median
    hasty: bool
    gold: Proportion
    others: Proportion  # labels of others on the same items that were the same, as a share of them
    left: Proportion
    ties: Proportion
    skips: int
    member: QueueMember | None

    @property
    def paused(self) -> bool:
        return self.member is not None and self.member.paused_at is not None


def summarize_labellers(queue: Queue, ratings: RatingTable, gold: list[GoldAnswer], only: int | None = None) -> list[Labeller]:
    """Those who labelled or skipped anything, most labels first. ``only``: one person's."""
    judgements = Judgement.objects.filter(queue=queue).counting()
    usual = judgements.exclude(verdict=Verdict.SKIP).aggregate(median=Median("seconds"))["median"]
    rows = fetch_labeller_tallies(queue, only)
    users = User.objects.in_bulk([row["user"] for row in rows])
    members = {member.user_id: member for member in QueueMember.objects.filter(queue=queue)}
    with_gold: dict[int, list[bool]] = defaultdict(list)
    for answer in gold:
        with_gold[answer.user].append(answer.right)
    others = with_others(ratings)
    return [
        Labeller(
            user=users[row["user"]],
            labels=row["labels"],
            seconds=row["seconds"],
            hasty=bool(usual and row["labels"] >= ENOUGH and row["seconds"] < HASTE * usual),
            gold=estimate_share(sum(with_gold[row["user"]]), len(with_gold[row["user"]])),
            others=others.get(row["user"], estimate_share(0, 0)),
            left=estimate_share(row["left"], row["sided"]) if queue.kind in (Kind.PAIR, Kind.CLEARER) else estimate_share(0, 0),
            ties=estimate_share(row["ties"], row["labels"]),
            skips=row["skips"],
            member=members.get(row["user"]),
        )
        for row in rows
    ]


def fetch_labeller_tallies(queue: Queue, only: int | None) -> list[dict[str, Any]]:
    """One query, whatever the number of labels."""
    first, second = Q(verdict__in=(Verdict.A, Verdict.FIRST)), Q(verdict__in=(Verdict.B, Verdict.SECOND))
    shown_first = Q(order__0=0) if queue.kind == Kind.PAIR else Q(order__0__in=(0, 1))
    label = ~Q(verdict=Verdict.SKIP)
    rows = Judgement.objects.filter(queue=queue).counting()
    if only is not None:
        rows = rows.filter(user=only)
    tallies = (
        rows.order_by()
        .values("user")
        .annotate(
            labels=Count("pk", filter=label),
            skips=Count("pk", filter=~label),
            ties=Count("pk", filter=Q(verdict__in=(Verdict.TIE, Verdict.BAD) if queue.kind != Kind.SINGLE else (Verdict.NEUTRAL,))),
            left=Count("pk", filter=(first & shown_first) | (second & ~shown_first)),
            sided=Count("pk", filter=first | second),
            seconds=Median("seconds", filter=label),
        )
    )
    return sorted(map(dict, tallies), key=lambda row: (-row["labels"], row["user"]))


def gold_answers(queue: Queue, only: int | None = None) -> list[GoldAnswer]:
    """In order of time."""
    rows = Judgement.objects.filter(queue=queue, item__gold__isnull=False).counting().select_related("item").order_by("pk")
    if only is not None:
        rows = rows.filter(user=only)
    known = ((row, is_gold_match(row.item.gold, row)) for row in rows)
    return [
        GoldAnswer(row.user_id, verdict, row.pk, tuple(row.item.rollouts), row.item.repeats_id is not None)
        for row, verdict in known
        if verdict is not None
    ]


def with_others(ratings: RatingTable) -> dict[int, Proportion]:
    """By user id. The interval counts units: of three labels on an item, the two others weigh as one answer."""
    counts = ratings.counts()
    sizes = counts.sum(axis=1)[ratings.units] - 1
    same = counts[ratings.units, ratings.codes] - 1
    compared = sizes > 0
    agreement = np.where(compared, same / np.maximum(sizes, 1), 0.0)
    people = len(ratings.people)
    hits = np.bincount(ratings.labellers, weights=agreement * compared, minlength=people)
    number = np.bincount(ratings.labellers, weights=compared.astype(float), minlength=people)
    return {user: estimate_share(float(hits[index]), int(number[index])) for index, user in enumerate(ratings.people)}
