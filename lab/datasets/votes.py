"""What people said about the items of queues, read from the database: one ``Judged`` an item, in the order rows are written.

Recalled labels are not read: those of a recalled labeller, prompt or queue count as if they had never been given.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from django.db.models import Q

from lab.accounts.models import Team
from lab.datasets.models import Recall, RecallKind
from lab.labels.models import COUNTING, Item, ItemState, Judgement, JudgementState, Preference, Queue, Verdict

BATCH = 2000
Pair = tuple[int, int]  # rollout ids: better, worse


@dataclass(frozen=True)
class Vote:
    """One judgement that counts. ``pairs``: what it says is better than what."""

    judgement: int
    user: int
    verdict: str
    pairs: frozenset[Pair]
    strength: int | None = None
    correction: str = ""
    seconds: float = 0.0


@dataclass(frozen=True)
class Judged:
    item: int
    queue: int
    prompt: int
    rollouts: tuple[int, ...]
    kind: str
    waiting: bool  # wants more labels
    votes: tuple[Vote, ...] = ()
    final: dict[str, Any] | None = field(default=None, hash=False)
    recalled: bool = False
    gold: bool = False


@dataclass(frozen=True)
class Recalled:
    labellers: frozenset[int] = frozenset()
    prompts: frozenset[int] = frozenset()
    queues: frozenset[int] = frozenset()


def recalled(team: Team) -> Recalled:
    found: defaultdict[str, set[int]] = defaultdict(set)
    for kind, labeller, prompt, queue in Recall.objects.of(team).filter(undone_at=None).values_list("kind", "labeller", "prompt", "queue"):
        value = {RecallKind.LABELLER: labeller, RecallKind.PROMPT: prompt, RecallKind.QUEUE: queue}.get(RecallKind(kind))
        if value is not None:
            found[kind].add(value)
    return Recalled(frozenset(found["labeller"]), frozenset(found["prompt"]), frozenset(found["queue"]))


def items_of(team: Team, queues: Sequence[int]) -> Any:
    """Items of these queues that somebody has judged or decided, in the order rows are written."""
    said = Q(labels__gt=0) | Q(final__isnull=False)
    kept = Item.objects.filter(said, queue__team=team, queue__in=list(queues)).exclude(state=ItemState.DROPPED)
    return kept.order_by("queue_id", "place", "id")


def read(team: Team, queues: Sequence[int], most: int | None = None) -> Iterator[Judged]:
    """At most ``most`` items. Memory is one batch; the caller decides what it keeps."""
    taken_back = recalled(team)
    kinds = {queue.pk: queue for queue in Queue.objects.of(team).filter(pk__in=list(queues))}
    every = iter(items_of(team, queues).iterator(chunk_size=BATCH))
    if most is not None:
        every = islice(every, most)
    while batch := list(islice(every, BATCH)):
        votes = votes_of(batch, kinds, taken_back)
        for item in batch:
            yield Judged(
                item=item.pk,
                queue=item.queue_id,
                prompt=item.prompt_id,
                rollouts=tuple(item.rollouts),
                kind=kinds[item.queue_id].kind,
                waiting=item.state == ItemState.OPEN,
                votes=tuple(votes.get(item.pk, ())),
                final=item.final if item.state == ItemState.SETTLED else None,
                recalled=item.prompt_id in taken_back.prompts or item.queue_id in taken_back.queues,
                gold=item.gold is not None,
            )


def votes_of(items: Iterable[Item], queues: dict[int, Queue], taken_back: Recalled) -> dict[int, list[Vote]]:
    """Judgements that count, by item, oldest first; of a reviewed queue only accepted ones."""
    ids = [item.pk for item in items]
    rows = Judgement.objects.filter(item__in=ids, state__in=COUNTING).exclude(verdict=Verdict.SKIP)
    rows = rows.exclude(user__in=taken_back.labellers).order_by("pk")
    judgements = [one for one in rows if not queues[one.queue_id].reviewed or one.state == JudgementState.ACCEPTED]
    pairs: defaultdict[int, set[Pair]] = defaultdict(set)
    stored = Preference.objects.filter(item__in=ids).values_list("judgement", "chosen", "rejected")
    for judgement, chosen, rejected in stored:
        pairs[judgement].add((chosen, rejected))
    found: defaultdict[int, list[Vote]] = defaultdict(list)
    for one in judgements:
        vote = Vote(one.pk, one.user_id, one.verdict, frozenset(pairs[one.pk]), one.strength, one.correction.strip(), one.seconds)
        found[one.item_id].append(vote)
    return found


def gold_scores(team: Team, queues: Sequence[int]) -> dict[int, float]:
    """Labeller -> share of the gold items of these queues they got right, smoothed: (right + 1) / (judged + 2). Nobody's is 0.5."""
    right: defaultdict[int, int] = defaultdict(int)
    judged: defaultdict[int, int] = defaultdict(int)
    rows = Judgement.objects.filter(queue__team=team, queue__in=list(queues), state__in=COUNTING, item__gold__isnull=False)
    for user, verdict, gold in rows.exclude(verdict=Verdict.SKIP).values_list("user", "verdict", "item__gold"):
        judged[user] += 1
        right[user] += verdict == (gold or {}).get("verdict")
    return {user: (right[user] + 1) / (count + 2) for user, count in judged.items()}
