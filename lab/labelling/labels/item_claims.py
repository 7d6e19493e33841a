"""Who works on which item. A claim is a lock with an end: ``claim_items`` gives it, ``renew_claims`` puts the end off, ``release_claims`` gives it
back.

One person's verbs in one queue go one after another (``one_at_a_time``); between people the item's row decides, and whoever looks for work steps
over rows that somebody holds at that moment, so that 50 people asking at once never wait for each other and never get the same seat.

A claim that has run out keeps its seat until somebody looks for work. Then it loses the seat, but the row stays with its draft: a late answer, a
late renewal or the next claim of the same item takes the seat again as long as one is free.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db import connection, transaction
from django.db.models import Exists, OuterRef, Q, QuerySet
from django.db.models.functions import Now

from lab.labelling.labels.labeller_standing import QueuePaused, may_label
from lab.labelling.labels.models import Claim, Item, ItemState, Judgement, JudgementState, Kind, Queue, Verdict
from lab.labelling.labels.settlement import lock_item, update_item_state
from lab.lib.clock import database_now
from lab.lib.refusals import Refusal
from lab.teams.accounts.models import Membership, User

__all__ = ["NoWorkReason", "Refusal", "claim_items", "free_claims", "release_claims", "renew_claims", "why_nothing"]

MOST_HELD = 10
ELSEWHERE = "Choose another queue."
FREED_AT_ONCE = 200  # expired claims that one look for work clears away


@dataclass(frozen=True)
class NoWorkReason:
    """Why there is no work: ``reason``, and what the person can do (``fix``)."""

    reason: str
    fix: str


def claim_items(queue: Queue, user: User, hold: int = 2) -> list[Claim]:
    """The user's live claims, oldest first, topped up to ``hold``; each with its item. Extends none. Raises Refusal."""
    hold = min(max(hold, 1), MOST_HELD)
    try:
        may_label(queue, user)
    except QueuePaused:
        raise
    except Refusal:
        if queue.claims.filter(user=user, seated=True).exists():
            free_claims(queue, user)
        raise
    with transaction.atomic():
        one_at_a_time(queue, user)
        held, expired = fetch_claim_status(queue, user)
        if expired:
            clear_expired(queue)
        taken = take_free_seats(queue, user, hold - held) if held < hold else 0
        return list(list_live_claims(queue, user)) if held + taken else []


LOOK = """
SELECT
    (SELECT count(*) FROM labels_claim claim JOIN labels_item item ON item.id = claim.item_id
     WHERE claim.queue_id = %(queue)s AND claim.user_id = %(user)s AND claim.seated
     AND claim.expires_at > statement_timestamp() AND item.state = 'open'),
    EXISTS (SELECT FROM labels_claim claim WHERE claim.queue_id = %(queue)s AND claim.seated
        AND (claim.expires_at <= statement_timestamp() OR NOT EXISTS (
        SELECT FROM accounts_membership membership JOIN accounts_user person ON person.id = membership.user_id
        WHERE membership.team_id = %(team)s AND membership.user_id = claim.user_id AND membership.active AND person.is_active)))
"""


def fetch_claim_status(queue: Queue, user: User) -> tuple[int, bool]:
    """How many live claims the user has, and whether the queue has any to be cleared."""
    with connection.cursor() as cursor:
        cursor.execute(LOOK, {"queue": queue.pk, "user": user.pk, "team": queue.team_id})
        held, expired = cursor.fetchone()
    return held, expired


def one_at_a_time(queue: Queue, user: User) -> None:
    """Makes this person's other verbs in this queue wait until the transaction ends."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", [f"labels {queue.pk} {user.pk}"])


def list_live_claims(queue: Queue, user: User) -> QuerySet[Claim]:
    open_items = Q(item__state=ItemState.OPEN)
    mine = Claim.objects.filter(open_items, queue=queue, user=user, seated=True, expires_at__gt=Now())
    return mine.select_related("item").annotate(read_at=Now()).order_by("created_at", "pk")  # type: ignore[no-redef]


# A gold item that is asked again goes to the people who answered it before; to ``anyone`` once there is nothing else.
# A row that somebody holds at this moment is stepped over; one that was taken between looking and locking no longer has room and is not taken.
TAKE = """
WITH free AS (
    SELECT item.id FROM labels_item item
    WHERE item.queue_id = %(queue)s AND item.state = 'open' AND item.room > 0
    AND NOT EXISTS (SELECT FROM labels_claim claim WHERE claim.item_id = item.id AND claim.user_id = %(user)s AND claim.seated)
    AND NOT EXISTS (
        SELECT FROM labels_judgement said WHERE said.item_id = item.id AND said.user_id = %(user)s AND said.state <> 'withdrawn')
    AND (item.repeats_id IS NULL OR %(anyone)s OR EXISTS (
        SELECT FROM labels_judgement before WHERE before.item_id = item.repeats_id AND before.user_id = %(user)s AND before.state <> 'withdrawn'))
    ORDER BY item.place, item.id LIMIT %(count)s FOR UPDATE SKIP LOCKED
)
UPDATE labels_item item SET room = item.room - 1 FROM free WHERE item.id = free.id
RETURNING item.id, item.place, coalesce(jsonb_array_length(nullif(item.texts, 'null')), cardinality(item.rollouts))
"""
# Who had the item before gets their draft, their sides and their token again.
SEAT = """
INSERT INTO labels_claim (item_id, queue_id, user_id, token, "order", draft, seated, created_at, expires_at)
VALUES (%s, %s, %s, %s, %s, '{}', true, statement_timestamp(), statement_timestamp() + make_interval(mins => %s))
ON CONFLICT (item_id, user_id) DO UPDATE SET seated = true, created_at = excluded.created_at, expires_at = excluded.expires_at
"""


def take_free_seats(queue: Queue, user: User, count: int) -> int:
    """New seats for the user, in the order of the items' places; how many."""
    with connection.cursor() as cursor:
        seats: list[tuple[int, float, int]] = []
        for anyone in (False, True):
            if len(seats) < count:
                cursor.execute(TAKE, {"queue": queue.pk, "user": user.pk, "count": count - len(seats), "anyone": anyone})
                seats += sorted(cursor.fetchall(), key=lambda row: (row[1], row[0]))
        for item, _, size in seats:  # a statement each, so that their times keep the order
            cursor.execute(SEAT, [item, queue.pk, user.pk, uuid.uuid4(), shuffle_answer_order(queue.kind, size), queue.lock_minutes])
    return len(seats)


def shuffle_answer_order(kind: str, count: int) -> list[int]:
    """A random order of the places; of two pairs, the pairs stay together."""
    places = list(range(count))
    if kind != Kind.CLEARER:
        return random.sample(places, count)
    pairs = [random.sample(pair, 2) for pair in (places[:2], places[2:])]
    return [index for pair in random.sample(pairs, 2) for index in pair]


def clear_expired(queue: Queue) -> None:
    """Takes the seats of claims that have run out, or whose people have left. Steps over items somebody works on right now."""
    member = Membership.objects.filter(team=queue.team_id, user=OuterRef("user"), active=True, user__is_active=True)
    over = Claim.objects.filter(Q(expires_at__lte=Now()) | ~Exists(member), queue=queue, seated=True)
    expired = set(over.values_list("item_id", flat=True)[:FREED_AT_ONCE])
    if not expired:
        return
    items = queue.items.filter(pk__in=expired).order_by("pk").select_related("queue").select_for_update(skip_locked=True, of=("self",))
    for item in items:
        if over.filter(item=item).update(seated=False):
            update_item_state(item)


def free_claims(queue: Queue, user: User) -> None:
    """Takes all seats the user holds in the queue; drafts are kept. For who was paused, removed or deactivated."""
    with transaction.atomic():
        queue.claims.filter(user=user, seated=True).update(expires_at=Now())
        clear_expired(queue)


def release_claims(queue: Queue, user: User, tokens: Iterable[uuid.UUID]) -> int:
    """Gives seats back; how many. A draft is kept for when the person gets the item again."""
    given = 0
    with transaction.atomic():
        one_at_a_time(queue, user)
        for claim in Claim.objects.filter(queue=queue, user=user, token__in=list(tokens), seated=True).order_by("item"):
            item = lock_item(claim.item_id)
            mine = Claim.objects.same_row(claim).filter(seated=True)
            given += mine.update(seated=False) if claim.draft else mine.delete()[0]
            update_item_state(item)
    return given


def renew_claims(queue: Queue, user: User, tokens: Iterable[uuid.UUID]) -> dict[uuid.UUID, datetime]:
    """Those that are still held, or could be taken again, with their new end. Raises Refusal."""
    may_label(queue, user)
    with transaction.atomic():
        one_at_a_time(queue, user)
        claims = Claim.objects.filter(queue=queue, user=user, token__in=list(tokens)).order_by("item")
        return {row.token: row.expires_at for row in claims if extend_claim(row)}


def extend_claim(claim: Claim) -> bool:
    """Puts the end of a claim off; takes its seat again if it was lost and is free. Locks the item; the caller holds ``one_at_a_time``."""
    item = lock_item(claim.item_id)
    claim.refresh_from_db(fields=["seated"])
    if item.state != ItemState.OPEN or not (claim.seated or item.room > 0):
        return False
    came_back = not claim.seated
    claim.seated, claim.expires_at = True, database_now() + timedelta(minutes=item.queue.lock_minutes)
    claim.save(update_fields=["seated", "expires_at"])
    if came_back:
        update_item_state(item)
    return True


def why_nothing(queue: Queue, user: User) -> NoWorkReason:
    """In words, for when ``claim_items`` gave nothing."""
    items = Item.objects.filter(queue=queue)
    if not items.exists():
        return NoWorkReason("This queue has no items yet.", "Its manager can add some.")
    mine = Judgement.objects.filter(queue=queue, user=user)
    if returned := mine.filter(state=JudgementState.RETURNED).count():
        were = "was" if returned == 1 else "were"
        return NoWorkReason(f"No new items for you, but {returned} of your labels {were} sent back.", "Revise them.")
    wanting = items.filter(state=ItemState.OPEN)
    if not wanting.exists():
        return NoWorkReason("Every item of this queue has its labels.", ELSEWHERE)
    judged = mine.filter(item=OuterRef("pk")).exclude(state=JudgementState.WITHDRAWN)
    others = wanting.filter(~Exists(judged))
    if not others.exists():
        skips = mine.filter(verdict=Verdict.SKIP).exclude(state=JudgementState.WITHDRAWN).exists()
        done = "labelled or skipped" if skips else "labelled"
        return NoWorkReason(f"You have {done} every item that still needs labels; the rest is for others.", ELSEWHERE)
    held = Claim.objects.filter(item__in=others, seated=True).order_by("expires_at").values_list("expires_at", flat=True).first()
    if held is None:
        return NoWorkReason("The remaining items were just taken.", "Refresh in a minute.")
    minutes = max(1, round((held - database_now()).total_seconds() / 60))
    return NoWorkReason("All remaining items are assigned to others.", f"Refresh later: the next lock ends in {minutes} min unless it is renewed.")
