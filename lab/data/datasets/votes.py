"""What people said about the items of queues, read from the database: one ``JudgedItem`` an item, in the order rows are written.

Recalled labels are not read: those of a recalled labeller, prompt or queue count as if they had never been given.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from django.db.models import Q

from lab.data.datasets.models import Recall, RecallKind
from lab.labelling.labels.models import Item, ItemState, Judgement, JudgementState, Preference, Queue, Verdict
from lab.labelling.labels.outcome import is_gold_match
from lab.teams.accounts.models import Team

BATCH = 2000
Pair = tuple[int, int]  # rollout ids: better, worse


@dataclass(frozen=True)
class TokenMark:
    """Tokens [start, end) of an answer, what was said of them (good, bad, neutral), and the text they covered."""

    start: int
    end: int
    mark: str
    text: str


@dataclass(frozen=True)
class ItemVote:
    """One judgement that counts. ``pairs``: what it says is better than what."""

    judgement: int
    user: int
    verdict: str
    pairs: frozenset[Pair]
    strength: int | None = None
    correction: str = ""
    seconds: float = 0.0
    steps: tuple[TokenMark, ...] = ()
    spans: tuple[TokenMark, ...] = ()


@dataclass(frozen=True)
class JudgedItem:
    item: int
    queue: int
    prompt: int
    rollouts: tuple[int, ...]
    kind: str
    waiting: bool  # wants more labels
    votes: tuple[ItemVote, ...] = ()
    final: dict[str, Any] | None = field(default=None, hash=False)
    recalled: bool = False
    gold: bool = False


@dataclass(frozen=True)
class RecalledSources:
    labellers: frozenset[int] = frozenset()
    prompts: frozenset[int] = frozenset()
    queues: frozenset[int] = frozenset()


def load_active_recalls(team: Team) -> RecalledSources:
    recalled: defaultdict[str, set[int]] = defaultdict(set)
    for kind, labeller, prompt, queue in Recall.objects.of(team).filter(undone_at=None).values_list("kind", "labeller", "prompt", "queue"):
        value = {RecallKind.LABELLER: labeller, RecallKind.PROMPT: prompt, RecallKind.QUEUE: queue}.get(RecallKind(kind))
        if value is not None:
            recalled[kind].add(value)
    return RecalledSources(frozenset(recalled["labeller"]), frozenset(recalled["prompt"]), frozenset(recalled["queue"]))


def items_of(team: Team, queues: Sequence[int]) -> Any:
    """Items of these queues that somebody has judged or decided, in the order rows are written.

    A gold item that was asked again counts once, by what people said the first time.
    """
    labelled = Q(labels__gt=0) | Q(final__isnull=False)
    kept = Item.objects.filter(labelled, repeats=None, queue__team=team, queue__in=list(queues)).exclude(state=ItemState.DROPPED)
    return kept.order_by("queue_id", "place", "id")


def read_judged_items(team: Team, queues: Sequence[int], most: int | None = None) -> Iterator[JudgedItem]:
    """At most ``most`` items. Memory is one batch; the caller decides what it keeps."""
    taken_back = load_active_recalls(team)
    kinds = {queue.pk: queue for queue in Queue.objects.of(team).filter(pk__in=list(queues))}
    # Tuples: model instances cost more than all the rest of a build.
    items = items_of(team, queues).values_list("pk", "queue_id", "prompt_id", "rollouts", "state", "final", "gold")
    every = iter(items.iterator(chunk_size=BATCH))
    if most is not None:
        every = islice(every, most)
    while batch := list(islice(every, BATCH)):
        votes = votes_of([row[0] for row in batch], kinds, taken_back)
        for item, queue, prompt, rollouts, state, final, gold in batch:
            yield JudgedItem(
                item=item,
                queue=queue,
                prompt=prompt,
                rollouts=tuple(rollouts),
                kind=kinds[queue].kind,
                waiting=state == ItemState.OPEN,
                votes=tuple(votes.get(item, ())),
                final=final if state == ItemState.SETTLED else None,
                recalled=prompt in taken_back.prompts or queue in taken_back.queues,
                gold=gold is not None,
            )


def votes_of(items: list[int], queues: dict[int, Queue], taken_back: RecalledSources) -> dict[int, list[ItemVote]]:
    """Judgements that count, by item, oldest first; of a reviewed queue only accepted ones."""
    pairs: defaultdict[int, set[Pair]] = defaultdict(set)
    for judgement, chosen, rejected in Preference.objects.filter(item__queue__in=list(queues.values()), item__in=items).values_list(
        "judgement", "chosen", "rejected"
    ):
        pairs[judgement].add((chosen, rejected))
    rows = (
        Judgement.objects.filter(queue__in=list(queues.values()), item__in=items)
        .counting()
        .exclude(verdict=Verdict.SKIP)
        .exclude(user__in=taken_back.labellers)
        .order_by("pk")
    )
    votes: defaultdict[int, list[ItemVote]] = defaultdict(list)
    names = ("pk", "item_id", "queue_id", "user_id", "verdict", "state", "strength", "correction", "seconds")
    marks = marks_in(rows, queues)
    for pk, item, queue, user, verdict, state, strength, correction, seconds in rows.values_list(*names):
        if state == JudgementState.ACCEPTED or not queues[queue].reviewed:
            steps, spans = marks.get(pk, ((), ()))
            votes[item].append(ItemVote(pk, user, verdict, frozenset(pairs[pk]), strength, correction.strip(), seconds, steps, spans))
    return votes


def marks_in(rows: Any, queues: dict[int, Queue]) -> dict[int, tuple[tuple[TokenMark, ...], tuple[TokenMark, ...]]]:
    """Judgement -> its marked steps and spans; read only where a queue asks for any."""
    asking = [pk for pk, queue in queues.items() if queue.steps or queue.spans]
    if not asking:
        return {}
    rows_marked = rows.filter(queue__in=asking).values_list("pk", "steps", "spans")
    return {pk: (marks_of(steps), marks_of(spans)) for pk, steps, spans in rows_marked if steps or spans}


def marks_of(stored: Iterable[Mapping[str, Any]] | None) -> tuple[TokenMark, ...]:
    """As judgements and final answers hold them: [{"start", "end", "mark", "text"}] by start."""
    return tuple(TokenMark(int(mark["start"]), int(mark["end"]), str(mark["mark"]), str(mark.get("text", ""))) for mark in stored or ())


def gold_scores(team: Team, queues: Sequence[int]) -> dict[int, float]:
    """Labeller -> share of the gold items of these queues they got right, smoothed: (right + 1) / (judged + 2). Nobody's is 0.5."""
    hits: defaultdict[int, int] = defaultdict(int)
    judged: defaultdict[int, int] = defaultdict(int)
    rows = Judgement.objects.filter(queue__team=team, queue__in=list(queues), item__gold__isnull=False).counting().select_related("item")
    for judgement in rows.iterator(chunk_size=BATCH):
        if (verdict := is_gold_match(judgement.item.gold, judgement)) is not None:
            judged[judgement.user_id] += 1
            hits[judgement.user_id] += verdict
    return {user: (hits[user] + 1) / (count + 2) for user, count in judged.items()}
