"""Where an item stands, and what reviewers do to judgements.

The item's row is the lock: every verb holds it (``lock_item``) while it reads and changes the item's claims and judgements, so that seats are counted
once. Whoever locks several items takes them in order of their ids.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, NamedTuple

from django.db import connection, transaction
from django.utils import timezone

from lab.labelling.labels.answers import AnswerError, LabelAnswer, read_answer
from lab.labelling.labels.implied_preferences import derive_preferences
from lab.labelling.labels.labeller_standing import may_review
from lab.labelling.labels.models import COUNTING, Change, Item, ItemState, Judgement, JudgementState, Preference, Queue, Verdict
from lab.labelling.labels.outcome import filter_opinions, find_agreed_verdict
from lab.lib.refusals import Problem, Refusal
from lab.teams.accounts.models import User
from lab.teams.audit.recording import record_audit_entry

SEATED = (*COUNTING, JudgementState.RETURNED)  # a judgement that was sent back keeps its seat until it is submitted again
FINAL = ("verdict", "strength", "tiers", "rubric", "rationale", "correction", "steps", "spans")


def lock_item(item_id: int, queue: Queue | None = None) -> Item:
    """The item as it is now, locked until the transaction ends; with its queue as it is now, or the one that is given."""
    if queue is None:
        return Item.across_teams.select_for_update(of=("self",)).select_related("queue").get(pk=item_id)
    item = Item.across_teams.select_for_update().get(pk=item_id)
    item.queue = queue
    return item


class ItemJudgement(NamedTuple):
    """A judgement of an item, as far as its state depends on it."""

    user: int
    verdict: str
    tiers: list[list[int]] | None
    state: str


@dataclass
class ItemTally:
    """What an item's state follows from: the queue's overlap, the users who hold it, and what was said of it."""

    overlap: int
    holders: list[int]
    judgements: list[ItemJudgement]


TALLY = """
SELECT queue.overlap,
    ARRAY(SELECT claim.user_id FROM labels_claim claim WHERE claim.item_id = item.id AND claim.seated),
    (SELECT json_agg(json_build_array(said.user_id, said.verdict, said.tiers, said.state)) FROM labels_judgement said WHERE said.item_id = item.id)
FROM labels_item item JOIN labels_queue queue ON queue.id = item.queue_id WHERE item.id = %s
"""


def fetch_item_tally(item: Item) -> ItemTally:
    """As it is now. The caller holds the item (``lock_item``)."""
    with connection.cursor() as cursor:
        cursor.execute(TALLY, [item.pk])
        overlap, holders, judgements = cursor.fetchone()
    rows = json.loads(judgements) if isinstance(judgements, str) else judgements
    return ItemTally(overlap, holders, [ItemJudgement(*row) for row in rows or []])


def compute_item_state(item: Item, tally: ItemTally) -> None:
    """Sets ``labels``, ``room`` and ``state``.

    Settled and dropped items stay so. A skip takes no seat. ``room`` never falls below 0, also when a restored judgement found its seat taken.
    """
    seats = sum(row.state in SEATED and row.verdict != Verdict.SKIP for row in tally.judgements)
    item.labels = len(filter_opinions(tally.judgements))
    item.room = max(0, tally.overlap - seats - len(tally.holders))
    if item.state not in (ItemState.SETTLED, ItemState.DROPPED):
        complete = item.labels >= tally.overlap
        item.state = ItemState.OPEN if not complete else ItemState.DONE if find_agreed_verdict(item, tally.judgements) else ItemState.CONFLICT


def update_item_state(item: Item) -> None:
    """Writes ``labels``, ``room`` and ``state`` from what counts. The caller holds the item (``lock_item``)."""
    compute_item_state(item, fetch_item_tally(item))
    Item.objects.same_row(item).update(labels=item.labels, room=item.room, state=item.state)


def snapshot_judgement(judgement: Judgement) -> dict[str, Any]:
    """A judgement as history keeps it."""
    return {**{name: getattr(judgement, name) for name in FINAL}, "order": judgement.order, "state": judgement.state, "seconds": judgement.seconds}


def sync_preferences(judgement: Judgement, item: Item) -> None:
    """Writes the preferences of a judgement that counts, and takes away those of one that does not."""
    Preference.objects.filter(judgement=judgement).delete()
    if judgement.state in COUNTING:
        pairs = derive_preferences(judgement.verdict, judgement.tiers, item.rollouts)
        Preference.objects.bulk_create(Preference(judgement=judgement, item=item, chosen=chosen, rejected=rejected) for chosen, rejected in pairs)


def decide_queue_item(item: Item, user: User, data: dict[str, Any], order: list[int], comment: str = "") -> None:
    """Settles the item with an answer (``data`` in the places of ``order``). Raises Refusal for somebody who judged the item, AnswerError."""
    with transaction.atomic():
        item = lock_item(item.pk)
        may_review(item.queue, user)
        if item.state == ItemState.DROPPED:
            raise Refusal("This item has left the queue.", "Go to the next one.", status=403)
        if Judgement.objects.filter(item=item, user=user, state__in=SEATED).exclude(verdict=Verdict.SKIP).exists():
            raise Refusal("You labelled this item yourself.", "Someone else must decide it.", status=403)
        answer = read_answer(item.queue, item, order, data, deciding=True)
        before = item.final
        item.final, item.final_by, item.final_at, item.final_comment = final_of(answer), user, timezone.now(), comment
        item.state = ItemState.SETTLED
        item.save(update_fields=["final", "final_by", "final_at", "final_comment", "state"])
        Change.objects.create(item=item, user=user, what="settled", before=before, after=item.final, comment=comment)
        update_item_state(item)
        record_audit_entry("label.decide", item, team=item.queue.team, actor=user, label=f"item {item.pk} of {item.queue}", queue=item.queue_id)


def final_of(answer: LabelAnswer) -> dict[str, Any]:
    return {name: getattr(answer, name) for name in FINAL}


def accept_judgement(judgement: Judgement, reviewer: User, comment: str = "") -> Judgement:
    """The judgement stands. Raises Refusal for one's own and for one that was taken back."""
    return review_judgement(judgement, reviewer, JudgementState.ACCEPTED, "accepted", comment)


def send_back(judgement: Judgement, reviewer: User, comment: str = "") -> Judgement:
    """Its author shall look at it again; until then it does not count but keeps its seat.

    Raises Refusal as ``accept_judgement`` does, AnswerError without a comment.
    """
    if not comment.strip():
        raise AnswerError([Problem("comment", "A reason is required to send back a label.", "Write what the labeller should check.")])
    return review_judgement(judgement, reviewer, JudgementState.RETURNED, "returned", comment)


def review_judgement(judgement: Judgement, reviewer: User, state: JudgementState, what: str, comment: str) -> Judgement:
    with transaction.atomic():
        item = lock_item(judgement.item_id)
        row = Judgement.objects.same_row(judgement).get()
        may_review(item.queue, reviewer)
        if row.user_id == reviewer.pk:
            raise Refusal("This is your own label.", "Someone else must review it.", status=403)
        if row.state == JudgementState.WITHDRAWN:
            raise Refusal("This label has been withdrawn.", "Reload the page.", status=403)
        if row.verdict == Verdict.SKIP:
            raise Refusal("A skip is not a label and needs no review.", "Go to the next one.", status=403)
        return change_judgement_state(row, item, reviewer, state, what, comment)


def withdraw_judgement(judgement: Judgement, by: User | None, what: str = "recalled", comment: str = "") -> Judgement:
    """Takes a judgement out: it no longer counts, its seat is free and its preferences are gone; the row and its history stay."""
    with transaction.atomic():
        item = lock_item(judgement.item_id)
        row = Judgement.objects.same_row(judgement).get()
        return row if row.state == JudgementState.WITHDRAWN else change_judgement_state(row, item, by, JudgementState.WITHDRAWN, what, comment)


def restore_judgement(judgement: Judgement, by: User | None, comment: str = "") -> Judgement:
    """Undoes ``withdraw_judgement``: the judgement is again what it was, also when its seat has been taken meanwhile
    (the item then has a label more).

    Raises Refusal for one that its author has taken back or submitted anew.
    """
    with transaction.atomic():
        item = lock_item(judgement.item_id)
        row = Judgement.objects.same_row(judgement).get()
        newest = Change.objects.filter(judgement=row).order_by("-pk").first()
        if row.state != JudgementState.WITHDRAWN or newest is None or newest.what == "undone":
            raise Refusal("This label is not withdrawn, or its author took it back.", "Reload the page.", status=403)
        state = JudgementState((newest.before or {}).get("state", JudgementState.SUBMITTED))
        return change_judgement_state(row, item, by, state, "restored", comment)


def drop_item(item: Item, by: User | None, what: str = "dropped", comment: str = "") -> None:
    """Takes an item out of its queue; labels stay, and who holds it is told when they submit."""
    with transaction.atomic():
        item = lock_item(item.pk)
        if item.state == ItemState.DROPPED:
            return
        before, item.state = item.state, ItemState.DROPPED
        item.save(update_fields=["state"])
        Change.objects.create(item=item, user=by, what=what, before={"state": before}, after={"state": item.state}, comment=comment)
        update_item_state(item)


def restore_dropped_item(item: Item, by: User | None, what: str = "restored", comment: str = "") -> None:
    """Puts a dropped item back; where it stands follows from its labels, or from its final answer."""
    with transaction.atomic():
        item = lock_item(item.pk)
        if item.state != ItemState.DROPPED:
            return
        item.state = ItemState.SETTLED if item.final else ItemState.OPEN
        item.save(update_fields=["state"])
        update_item_state(item)
        Change.objects.create(item=item, user=by, what=what, before={"state": ItemState.DROPPED}, after={"state": item.state}, comment=comment)


def change_judgement_state(row: Judgement, item: Item, by: User | None, state: JudgementState, what: str, comment: str) -> Judgement:
    """Changes the state with everything that follows from it. The caller holds the item."""
    before = snapshot_judgement(row)
    if row.state != state:
        row.state = state
        row.save(update_fields=["state", "changed_at"])
        sync_preferences(row, item)
    Change.objects.create(item=item, judgement=row, user=by, what=what, before=before, after=snapshot_judgement(row), comment=comment)
    update_item_state(item)
    return row
