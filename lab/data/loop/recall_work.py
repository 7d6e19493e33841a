"""Recalls at work: judgements are withdrawn, items leave their queue or lose a final answer, in batches that any worker may go on with.

Every batch is one transaction under the recall's row, so that of several workers one does it. What was done is in ``Withdrawal``; undoing goes
through those rows and leaves nothing of them. A judgement that two recalls took back comes back when the second one is undone.
"""

from __future__ import annotations

import time
from contextlib import suppress
from datetime import timedelta
from typing import Any

from django.db import transaction
from django.db.models import Exists, OuterRef, Q, QuerySet
from django.utils import timezone

from lab.data.datasets.models import Recall, RecallKind
from lab.data.loop.models import Withdrawal
from lab.labelling.labels.models import COUNTING, Change, Item, ItemState, Judgement, JudgementState
from lab.labelling.labels.settlement import drop_item, lock_item, restore_dropped_item, restore_judgement, update_item_state, withdraw_judgement
from lab.lib.refusals import Refusal
from lab.teams.accounts.models import User

BATCH = 50
PATIENCE = 2.0  # seconds a person waits; the rest is left to the workers
LOOKED_AFTER = timedelta(days=1)  # a recall takes back what was said before it, which does not take longer
TAKEN = (*COUNTING, JudgementState.RETURNED)
FINAL = ("state", "final", "final_by_id", "final_at", "final_comment")


def select_recalled_judgements(recall: Recall) -> QuerySet[Judgement]:
    """Said before the recall by whom, about what or in which queue it names, whatever became of them."""
    judgements = Judgement.objects.of(recall.team).filter(created_at__lte=recall.at or timezone.now())
    if recall.kind == RecallKind.LABELLER and recall.labeller_id is not None:
        return judgements.filter(user=recall.labeller_id)
    if recall.kind == RecallKind.PROMPT and recall.prompt is not None:
        return judgements.filter(item__prompt=recall.prompt)
    if recall.kind == RecallKind.QUEUE and recall.queue_id is not None:
        return judgements.filter(queue=recall.queue_id)
    return judgements.none()


def select_recalled_items(recall: Recall) -> QuerySet[Item]:
    """Of a labeller: items they decided. Of a prompt or a queue: its items."""
    every = Item.objects.filter(queue__team=recall.team)
    if recall.kind == RecallKind.LABELLER and recall.labeller_id is not None:
        return every.filter(final_by=recall.labeller_id, final_at__lte=recall.at or timezone.now(), state=ItemState.SETTLED)
    if recall.kind == RecallKind.PROMPT and recall.prompt is not None:
        return every.filter(prompt=recall.prompt)
    if recall.kind == RecallKind.QUEUE and recall.queue_id is not None:
        return every.filter(queue=recall.queue_id)
    return every.none()


def items_left(recall: Recall) -> QuerySet[Item]:
    done = Withdrawal.objects.filter(recall=recall, judgement=None, item=OuterRef("pk"))
    return select_recalled_items(recall).filter(~Exists(done))


def judgements_left(recall: Recall) -> QuerySet[Judgement]:
    """Those that count, and those another live recall has taken back: this one holds on to them too."""
    mine = Withdrawal.objects.filter(recall=recall, judgement=OuterRef("pk"))
    others = Withdrawal.objects.filter(judgement=OuterRef("pk"), recall__undone_at=None).exclude(recall=recall)
    return select_recalled_judgements(recall).filter(~Exists(mine)).filter(Q(state__in=TAKEN) | Q(Exists(others), state=JudgementState.WITHDRAWN))


def has_recall_work_left(recall: Recall) -> bool:
    return items_left(recall).exists() or judgements_left(recall).exists()


def carry_out(recall: Recall, seconds: float = PATIENCE) -> bool:
    """Batches until all is done or the time is over; whether all is done."""
    deadline = time.monotonic() + seconds
    while process_recall_batch(recall.pk):
        if time.monotonic() > deadline:
            return False
    return True


def process_recall_batch(recall_id: int) -> bool:
    """One batch; whether there may be more. Somebody else's batch counts as done."""
    with transaction.atomic():
        recall = (
            Recall.across_teams.select_for_update(skip_locked=True, of=("self",))
            .select_related("team", "by", "undone_by")
            .filter(pk=recall_id)
            .first()
        )
        if recall is None:
            return False
        return give_back(recall) if recall.undone_at else take_back_batch(recall)


def take_back_batch(recall: Recall) -> bool:
    comment = f"Recall {recall.pk}: {recall.reason}"
    chosen = list(items_left(recall).order_by("pk")[:BATCH])
    for item in chosen:
        before = {name: getattr(item, name) for name in FINAL}
        before["final_at"] = item.final_at.isoformat() if item.final_at else None
        Withdrawal.objects.create(recall=recall, item=item, before=before)
        if recall.kind == RecallKind.LABELLER:
            clear_final_answer(item, recall.by, comment)
        else:
            drop_item(item, recall.by, "recalled", comment)
    if chosen:  # judgements in a transaction of their own: items are locked in order of their ids
        return True
    judgements = list(judgements_left(recall).order_by("item_id", "pk")[:BATCH])
    for judgement in judgements:
        Withdrawal.objects.create(recall=recall, item_id=judgement.item_id, judgement=judgement)
        withdraw_judgement(judgement, recall.by, "recalled", comment)
    return len(judgements) == BATCH


def clear_final_answer(item: Item, by: User | None, comment: str) -> None:
    """Takes the final answer away; where the item stands follows from its labels again."""
    item = lock_item(item.pk)
    before, item.final, item.final_by, item.final_at, item.final_comment = item.final, None, None, None, ""
    item.state = ItemState.OPEN
    item.save(update_fields=["final", "final_by", "final_at", "final_comment", "state"])
    Change.objects.create(item=item, user=by, what="recalled", before=before, after=None, comment=comment)
    update_item_state(item)


def give_back(recall: Recall) -> bool:
    comment = f"Recall {recall.pk} undone"
    rows = list(Withdrawal.objects.filter(recall=recall).select_related("item", "judgement").order_by("item_id", "pk")[:BATCH])
    for row in rows:
        held = Withdrawal.across_teams.filter(item=row.item_id, judgement=row.judgement_id, recall__undone_at=None).exists()
        if held:
            pass  # another recall holds on to it
        elif row.judgement is not None:
            with suppress(Refusal):  # its author has taken it back or said something else meanwhile
                restore_judgement(row.judgement, recall.undone_by, comment)
        elif recall.kind == RecallKind.LABELLER:
            restore_final_answer(row.item_id, row.before or {}, recall.undone_by, comment)
        elif (row.before or {}).get("state") != ItemState.DROPPED:
            restore_dropped_item(row.item, recall.undone_by, "restored", comment)
        row.delete()
    return len(rows) == BATCH


def restore_final_answer(item_id: int, before: dict[str, Any], by: User | None, comment: str) -> None:
    """Puts a final answer back, unless somebody has decided anew or the item has left its queue."""
    item = lock_item(item_id)
    if item.final is not None or item.state == ItemState.DROPPED:
        return
    item.final, item.final_by_id, item.final_comment = before.get("final"), before.get("final_by_id"), before.get("final_comment") or ""
    item.final_at, item.state = before.get("final_at"), ItemState.SETTLED
    item.save(update_fields=["final", "final_by", "final_at", "final_comment", "state"])
    Change.objects.create(item=item, user=by, what="restored", before=None, after=item.final, comment=comment)
    update_item_state(item)


def sweep_recalls() -> None:
    """A batch of every recall that is not through. Raises database errors; the caller sweeps again later."""
    young = Recall.across_teams.filter(undone_at=None, at__gt=timezone.now() - LOOKED_AFTER).exclude(kind=RecallKind.RULE)
    undone = Recall.across_teams.filter(Exists(Withdrawal.objects.filter(recall=OuterRef("pk"))), undone_at__isnull=False)
    for recall in [*young.select_related("team"), *undone]:
        if recall.undone_at or has_recall_work_left(recall):
            process_recall_batch(recall.pk)
