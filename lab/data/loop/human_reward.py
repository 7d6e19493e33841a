"""Questions of running trainers to people, and the answers back into the run folder.

The supervisor's ingest stores each question (``record_questions``) in the transaction of its spool lines; while the run trains, its supervisor
sends what was answered and drops what is too late (``sync_reward_answers``). A question that is answered before it can be asked, because the queue
is paused or closed, is sent back as such, so that no step waits for people who are not asked.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from django.db import transaction
from django.utils import timezone

from lab.data.loop.models import Ask
from lab.labelling.labels.models import Item, ItemState, Judgement, Kind, Purpose, Queue, QueueStatus, Rationale
from lab.labelling.labels.new_queues import make_queue
from lab.labelling.labels.outcome import filter_opinions
from lab.labelling.labels.settlement import drop_item, lock_item, sync_preferences
from lab.lib.json_lines import append_json_lines
from lab.rollouts.trajectories.models import Rollout
from lab.training.runs.models import Run
from trainers.contract.events import Asked
from trainers.contract.spec import ANSWERS

log = logging.getLogger(__name__)

LATE = timedelta(seconds=1)  # after the deadline, as long as the trainer still looks
RECENT = timedelta(minutes=10)  # what one look goes through
LINKED_AT_ONCE = 50
LOCK_MINUTES = 5
WAITING = (ItemState.OPEN, ItemState.CONFLICT)
GUIDELINES = """A run is training and waiting for this. Rank its answers to the prompt, best first; equally good answers share a tier.

Your ranking becomes a reward: each answer gets the share of the other answers it beats. Questions not answered in time get the fallback reward."""


def record_questions(run: Run, questions: Sequence[Asked], prompts: Sequence[int]) -> None:
    """New questions become items of the run's reward queue, in the caller's transaction. ``prompts``: the stored prompt of each."""
    attempts = {event.attempt for event in questions}
    known = set(Ask.objects.filter(run=run, attempt__in=attempts).values_list("attempt", "key"))
    queue = find_reward_queue(run) or new_queue(run)
    if queue.status == QueueStatus.CLOSED and not known:
        Queue.objects.same_row(queue).update(status=QueueStatus.OPEN)  # it was closed when the run ended, and the run goes on
        queue.status = QueueStatus.OPEN
    now = timezone.now()
    for event, prompt in zip(questions, prompts, strict=True):
        if (event.attempt, event.key) in known:
            continue
        known.add((event.attempt, event.key))
        deadline = datetime.fromtimestamp(event.deadline, UTC)
        item = new_item(queue, event, prompt) if queue.status == QueueStatus.OPEN and deadline > now else None
        Ask.objects.create(run=run, attempt=event.attempt, key=event.key, step=event.step, group=event.group, item=item, deadline=deadline)


def new_item(queue: Queue, event: Asked, prompt: int) -> Item:
    position = event.step + min(event.group, 999_999) / 1_000_000  # in the order of the steps
    return Item.objects.create(queue=queue, place=position, prompt_id=prompt, texts=event.completions, room=queue.overlap)


def find_reward_queue(run: Run) -> Queue | None:
    """The queue in which people are asked about the run."""
    newest = Ask.objects.filter(run=run, item__isnull=False).select_related("item__queue").order_by("-pk").first()
    return newest.item.queue if newest and newest.item else None


def new_queue(run: Run) -> Queue:
    seconds = float((run.spec.get("human") or {}).get("seconds") or 60)
    return make_queue(
        run.team,
        run.created_by,
        name=f"Reward of #{run.number} {run.name}"[:100],
        kind=Kind.RANKING,
        project=run.project,
        purpose=Purpose.REWARD,
        guidelines=GUIDELINES,
        lock_minutes=min(max(1, math.ceil(seconds / 60)), LOCK_MINUTES),
        strength=False,
        rationale=Rationale.NONE,
    )


def sync_reward_answers(run: Run) -> int:
    """Sends what was answered, drops what is too late, links what is stored. Returns how many answers were sent.

    Raises OSError when the run folder cannot be written to.
    """
    now = timezone.now()
    recent = Ask.objects.filter(run=run, deadline__gt=now - RECENT)
    sent = send_answers(run, list(recent.filter(answered_at=None, deadline__gt=now - LATE).exclude(item__state__in=WAITING).select_related("item")))
    drop_late(run, now - RECENT)
    link_stored_items(run, now - RECENT)
    return sent


def send_answers(run: Run, asks: Sequence[Ask]) -> int:
    """Appends the answers to the file and marks them. The file first: an answer that is there twice counts once."""
    if not asks:
        return 0
    answers = [(ask, tiers_of(ask)) for ask in asks]
    append_json_lines(run.folder / ANSWERS, [{"key": ask.key, "tiers": tiers} for ask, tiers in answers])
    now = timezone.now()
    for ask, tiers in answers:
        Ask.objects.same_row(ask).update(answered_at=now, rewards=tiers)
    return len(answers)


def tiers_of(ask: Ask) -> list[list[int]] | None:
    """The ranking people agreed on; None where nobody will give one."""
    item = ask.item
    if item is None or item.state == ItemState.DROPPED:
        return None
    if item.state == ItemState.SETTLED and item.final:
        final: list[list[int]] | None = item.final.get("tiers")
        return final
    opinions = filter_opinions(Judgement.objects.filter(item=item).order_by("pk"))
    return opinions[0].tiers if opinions else None


def drop_late(run: Run, since: datetime | None = None) -> int:
    """Takes what nobody waits for any more out of the queue; returns how many. ``since``: only deadlines after it."""
    late = Item.objects.filter(ask__run=run, ask__deadline__lte=timezone.now() - LATE, state__in=WAITING)
    if since is not None:
        late = late.filter(ask__deadline__gt=since)
    items = list(late.only("pk"))
    for item in items:
        drop_item(item, None, "late", "The deadline has passed; the run continued without an answer.")
    return len(items)


def link_stored_items(run: Run, since: datetime | None = None) -> int:
    """Gives items the rollouts that their texts have become, so that votes are preferences between them. Returns how many."""
    stored = Ask.objects.filter(run=run, step__lte=run.step, item__texts__isnull=False, answered_at__isnull=False)
    if since is not None:
        stored = stored.filter(deadline__gt=since)
    return sum(link_item_rollouts(ask) for ask in stored.select_related("item")[:LINKED_AT_ONCE])


def link_item_rollouts(ask: Ask) -> bool:
    """Whether every text of the item was found among its rollouts."""
    assert ask.item_id is not None
    mine = Rollout.objects.filter(run=ask.run, attempt=ask.attempt, step=ask.step, group=ask.group, phase="train")
    by_text: dict[str, int] = {}
    for pk, text in mine.order_by("sample").values_list("pk", "completion"):
        by_text.setdefault(text, pk)
    with transaction.atomic():
        item = lock_item(ask.item_id)
        if item.texts is None or any(text not in by_text for text in item.texts):
            return False
        item.rollouts, item.texts = [by_text[text] for text in item.texts], None
        item.save(update_fields=["rollouts", "texts"])
        for judgement in item.judgements.all():
            sync_preferences(judgement, item)
    return True


def close_reward_queue(run: Run) -> None:
    """When the run has ended: nobody waits any more. A resumed run opens its queue again."""
    queue = find_reward_queue(run)
    if queue is None:
        return
    for item in Item.objects.filter(ask__run=run, state__in=WAITING).only("pk"):
        drop_item(item, None, "late", "The run has ended.")
    while link_stored_items(run):
        pass
    Queue.objects.same_row(queue).filter(status=QueueStatus.OPEN).update(status=QueueStatus.CLOSED)
