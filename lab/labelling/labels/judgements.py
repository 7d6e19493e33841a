"""Recording what a person says about an item. Each verb is one transaction: the answer, its preferences, its history and where the item stands.

Nothing a person wrote is lost: an answer that cannot be taken is kept as the draft of their claim, and one that came too late also in the item's
history (``Change`` with what "expired").
"""

from __future__ import annotations

import uuid
from datetime import timedelta
from typing import Any

from django.db import transaction
from django.db.models import Min
from django.db.utils import IntegrityError
from django.utils import timezone

from lab.labelling.labels.answers import AnswerError, as_shown, read_answer, seconds_of, to_judgement_fields
from lab.labelling.labels.item_claims import extend_claim, free_claims, one_at_a_time
from lab.labelling.labels.labeller_standing import may_label
from lab.labelling.labels.models import Change, Claim, Item, ItemState, Judgement, JudgementState, Queue, QueueMember, SkipHandling, Verdict
from lab.labelling.labels.outcome import is_gold_match
from lab.labelling.labels.recording import HeldClaim, find_judgement_and_claim, record_again, record_judgement
from lab.labelling.labels.settlement import (
    ItemJudgement,
    change_judgement_state,
    compute_item_state,
    fetch_item_tally,
    lock_item,
    snapshot_judgement,
    sync_preferences,
    update_item_state,
)
from lab.lib.clock import database_now
from lab.lib.refusals import Problem, Refusal
from lab.teams.accounts.models import User


class ClaimExpired(Refusal):
    """The lock ran out and the seat is gone. ``item`` is None when nothing is known of the token; ``by`` holds or judged the item meanwhile."""

    def __init__(self, item: Item | None = None, by: User | None = None) -> None:
        message, fix = describe_expiry(item, by)
        super().__init__(message, fix, code="expired")
        self.item, self.by = item, by


def describe_expiry(item: Item | None, by: User | None) -> tuple[str, str]:
    """Why the lock is gone. Who has the item is said, what they answered is not."""
    if item is None:
        message = "This item is no longer assigned to you: it was submitted in another window, returned, or reassigned."
        return message, "Continue with the next one."
    kept = "Your answer is kept as your draft and in the item's history."
    if item.state == ItemState.SETTLED:
        message = f"{by or 'Somebody'} has decided this item."
    elif item.state == ItemState.DROPPED:
        message = "This item has left the queue."
    else:
        message = f"Your lock on this item expired, and {by or 'somebody else'} has it now."
    return message, f"{kept} Continue with the next one."


def submit_judgement(queue: Queue, user: User, token: uuid.UUID, key: uuid.UUID, data: dict[str, Any], seconds: float) -> Judgement:
    """Records the answer to a claimed item; sending it again under its key gives the same judgement and changes nothing.

    Raises ClaimExpired, Refusal, AnswerError.
    """
    taken = seconds_of(seconds)
    try:
        with transaction.atomic():
            result = process_submission(queue, user, token, key, data, taken)
    except IntegrityError as error:
        raise AnswerError([Problem("key", "This key belongs to another answer.", "Reload the page; your draft is kept.")]) from error
    if isinstance(result, Exception):
        raise result
    return result


def process_submission(queue: Queue, user: User, token: uuid.UUID, key: uuid.UUID, data: dict[str, Any], seconds: float) -> Judgement | Refusal:
    """What came of it. A refusal is returned, not raised, so that the draft it leaves is kept."""
    one_at_a_time(queue, user)
    earlier, claim = find_judgement_and_claim(queue, user, token, key)
    if earlier and not (earlier.withdrawn and claim and claim.item == earlier.item):
        return queue.judgements.get(pk=earlier.id)
    if claim is None:
        return ClaimExpired()
    try:
        may_label(queue, user)
    except Refusal as refused:
        keep_answer_draft(queue, claim.id, data)
        return refused
    item = lock_item(claim.item, queue)
    tally = fetch_item_tally(item)
    if item.state != ItemState.OPEN or not (user.pk in tally.holders or item.room > 0):
        return too_late(claim, item, user, data)
    answer = read_answer(item.queue, item, claim.order, data)
    if answer.verdict == Verdict.SKIP and item.queue.skipping == SkipHandling.DROP:
        item.state = ItemState.DROPPED
    mine = ItemJudgement(user.pk, answer.verdict, answer.tiers, JudgementState.SUBMITTED)
    again = any(row.user == user.pk for row in tally.judgements)
    tally.holders = [holder for holder in tally.holders if holder != user.pk]
    tally.judgements = [row for row in tally.judgements if row.user != user.pk] + [mine]
    compute_item_state(item, tally)
    fields = {**to_judgement_fields(answer), "key": key, "order": claim.order, "seconds": seconds, "state": JudgementState.SUBMITTED}
    judgement = record_again(item, user, fields, claim.id) if again else record_judgement(item, user, fields, claim.id)
    if item.gold and answer.verdict != Verdict.SKIP:
        look_at_trust(item.queue, user)
    return judgement


def keep_answer_draft(queue: Queue, claim: int, data: Any) -> None:
    """Leaves an answer that was not taken as the draft of its claim."""
    if isinstance(data, dict):
        queue.claims.filter(pk=claim).update(draft=data)


def too_late(claim: HeldClaim, item: Item, user: User, data: Any) -> ClaimExpired:
    """Keeps the answer, in the history once however often it is sent."""
    after = {"answer": data, "order": claim.order}
    if not Change.objects.filter(item=item, user=user, what="expired", after=after).exists():
        Change.objects.create(item=item, user=user, what="expired", after=after)
    keep_answer_draft(item.queue, claim.id, data)
    return ClaimExpired(item, who_has(item, user))


def who_has(item: Item, user: User) -> User | None:
    """Who holds or judged the item, other than the person."""
    if item.state == ItemState.SETTLED and item.final_by_id:
        return item.final_by
    held = Claim.objects.filter(item=item, seated=True).exclude(user=user).select_related("user").order_by("-created_at").first()
    if held:
        return held.user
    judgements = Judgement.objects.filter(item=item).exclude(user=user).exclude(state=JudgementState.WITHDRAWN)
    newest = judgements.select_related("user").order_by("-created_at").first()
    return newest.user if newest else None


def look_at_trust(queue: Queue, user: User) -> None:
    """Pauses a labeller whose share of gold items got right is below the queue's limit, once enough of them were judged."""
    if queue.min_trust is None:
        return
    rows = Judgement.objects.filter(queue=queue, user=user, item__gold__isnull=False).counting().exclude(verdict=Verdict.SKIP).select_related("item")
    results = [is_gold_match(row.item.gold, row) for row in rows]
    judged, hits = len(results), sum(result is True for result in results)
    if judged < max(1, queue.trust_after) or hits / judged >= queue.min_trust:
        return
    reason = f"You agreed with {hits} of {judged} gold items; this queue requires {queue.min_trust:.0%}."
    paused = {"paused_at": timezone.now(), "paused_reason": reason}
    # Whoever had no row could label, so the row that is made lets them, once somebody ends the pause.
    QueueMember.objects.update_or_create(queue=queue, user=user, defaults=paused)
    free_claims(queue, user)


def save_draft(queue: Queue, user: User, token: uuid.UUID, draft: dict[str, Any]) -> None:
    """Keeps what the person has written so far, also when it is too late to submit it. Raises ClaimExpired, Refusal."""
    with transaction.atomic():
        one_at_a_time(queue, user)
        claim = Claim.objects.filter(token=token, user=user, queue=queue).first()
        if claim is None:
            raise ClaimExpired
        keep_answer_draft(queue, claim.pk, draft)
        held = claim.seated or extend_claim(claim)
    if not held:
        item = queue.items.get(pk=claim.item_id)
        raise ClaimExpired(item, who_has(item, user))


def undo_last_judgement(queue: Queue, user: User) -> Claim:
    """Takes back the person's newest judgement of the queue and gives them the item again, with the answer as draft and the sides as they were.

    Raises Refusal.
    """
    may_label(queue, user)
    with transaction.atomic():
        one_at_a_time(queue, user)
        judgement = Judgement.objects.filter(queue=queue, user=user).exclude(state=JudgementState.WITHDRAWN).order_by("-created_at", "-pk").first()
        if judgement is None:
            raise Refusal("You have no label in this queue to undo.", code="nothing-to-undo")
        item = lock_item(judgement.item_id)
        judgement.refresh_from_db()
        refuse_undo(judgement, item)
        before_all = queue.claims.filter(user=user, seated=True).aggregate(first=Min("created_at"))["first"]
        claim, _ = Claim.objects.update_or_create(
            item=item,
            user=user,
            defaults={
                "queue": queue,
                "order": judgement.order,
                "draft": as_shown(judgement, judgement.order),
                "seated": True,
                "expires_at": database_now() + timedelta(minutes=item.queue.lock_minutes),
            },
        )
        if before_all and before_all <= claim.created_at:  # the page goes on with the item that came back
            claim.created_at = before_all - timedelta(microseconds=1)
            claim.save(update_fields=["created_at"])
        change_judgement_state(judgement, item, user, JudgementState.WITHDRAWN, "undone", "")
    claim.item = item
    return claim


def refuse_undo(judgement: Judgement, item: Item) -> None:
    if judgement.state == JudgementState.ACCEPTED:
        raise Refusal("A reviewer has accepted your last label.", "Ask the reviewer to send it back to you.", code="reviewed")
    if judgement.state == JudgementState.RETURNED:
        raise Refusal("A reviewer has sent your last label back.", "Change it where it is listed as sent back.", code="reviewed")
    if item.state == ItemState.SETTLED:
        raise Refusal("Your last item has been decided.", "Ask the manager of the queue.", code="reviewed")
    if judgement.verdict != Verdict.SKIP:
        if item.state == ItemState.DROPPED:
            raise Refusal("Your last item has left the queue.", "Go on with the next one.", code="nothing-to-undo")
        return
    if item.state == ItemState.DROPPED:
        newest = Change.objects.filter(item=item).order_by("-pk").first()
        if newest is None or newest.judgement_id != judgement.pk or newest.what != "skipped":
            raise Refusal("The item you skipped last has left the queue.", "Go on with the next one.", code="nothing-to-undo")
        Item.objects.same_row(item).update(state=ItemState.OPEN)
        item.state = ItemState.OPEN
    elif item.room < 1:
        raise Refusal("The item you skipped last is assigned to someone else.", "Go on with the next one.", code="nothing-to-undo")


def revise_judgement(judgement: Judgement, user: User, key: uuid.UUID, data: dict[str, Any], seconds: float) -> Judgement:
    """Another answer in place of one's own: one that was sent back, or an earlier one nobody has accepted. Idempotent by key.

    Raises Refusal, AnswerError.
    """
    taken = seconds_of(seconds)
    may_label(judgement.queue, user)
    try:
        with transaction.atomic():
            one_at_a_time(judgement.queue, user)
            item = lock_item(judgement.item_id)
            row = Judgement.objects.same_row(judgement).get()
            if row.user_id != user.pk:
                raise Refusal("This label belongs to someone else.", "Decide the item instead, or send the label back.", status=403)
            if row.key == key:
                return row
            refuse_revision(row, item)
            answer = read_answer(item.queue, item, row.order, data)
            if answer.verdict == Verdict.SKIP:
                raise AnswerError([Problem("choice", "A label cannot be changed to a skip.", "Choose an answer, or undo the label.")])
            before = snapshot_judgement(row)
            for name, value in {**to_judgement_fields(answer), "key": key, "seconds": row.seconds + taken, "state": JudgementState.SUBMITTED}.items():
                setattr(row, name, value)
            row.save()
            sync_preferences(row, item)
            Change.objects.create(item=item, judgement=row, user=user, what="revised", before=before, after=snapshot_judgement(row))
            update_item_state(item)
            return row
    except IntegrityError as error:
        raise AnswerError([Problem("key", "This key belongs to another answer.", "Reload the page; your draft is kept.")]) from error


def refuse_revision(row: Judgement, item: Item) -> None:
    if row.state == JudgementState.ACCEPTED:
        raise Refusal("A reviewer has accepted this label.", "Ask the reviewer to send it back to you.", code="reviewed")
    if row.state == JudgementState.WITHDRAWN:
        raise Refusal("This label was withdrawn.", "Go on with the next item.", status=403)
    if row.verdict == Verdict.SKIP:
        raise Refusal("You skipped this item.", "You can undo the skip while it is your latest answer.", status=403)
    if item.state in (ItemState.SETTLED, ItemState.DROPPED):
        decided = item.state == ItemState.SETTLED
        raise Refusal("This item has been decided." if decided else "This item has left the queue.", "Your label is unchanged.", status=403)
