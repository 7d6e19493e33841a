"""Writing a label down: the part of ``judging.submit`` that runs once a label, in statements written out.

Through the ORM one label took 22 statements and 20 ms of Python, most of it spent on writing the same SQL again; 50 people at once left no room for
that in 50 ms. Here it is three: what is known of the token and the key, the item's tally (``settling``), and all rows in one.
"""

from __future__ import annotations

import json
import uuid
from typing import Any, NamedTuple

from django.db import connection
from django.utils import timezone

from lab.labelling.labels.implied_preferences import derive_preferences
from lab.labelling.labels.models import Change, Item, Judgement, Queue, Verdict
from lab.labelling.labels.settlement import snapshot_judgement, sync_preferences
from lab.teams.accounts.models import User


class HeldClaim(NamedTuple):
    """A claim by its token, with its seat or without."""

    id: int
    item: int
    order: list[int]


class EarlierJudgement(NamedTuple):
    """A judgement by its key."""

    id: int
    item: int
    withdrawn: bool


KNOWN = """
SELECT claim.id, claim.item_id, claim."order", said.id, said.item_id, said.state = 'withdrawn'
FROM (SELECT) one
LEFT JOIN labels_claim claim ON claim.token = %(token)s AND claim.user_id = %(user)s AND claim.queue_id = %(queue)s
LEFT JOIN labels_judgement said ON said.key = %(key)s AND said.user_id = %(user)s AND said.queue_id = %(queue)s
"""


def find_judgement_and_claim(queue: Queue, user: User, token: uuid.UUID, key: uuid.UUID) -> tuple[EarlierJudgement | None, HeldClaim | None]:
    """The person's judgement under the key and their claim under the token."""
    with connection.cursor() as cursor:
        cursor.execute(KNOWN, {"queue": queue.pk, "user": user.pk, "token": token, "key": key})
        claim, item, order, judgement, said_item, withdrawn = cursor.fetchone()
    return EarlierJudgement(judgement, said_item, withdrawn) if judgement else None, HeldClaim(claim, item, list(order)) if claim else None


RECORD = """
WITH said AS (
    INSERT INTO labels_judgement (item_id, queue_id, user_id, key, verdict, strength, tiers, rubric, rationale, correction,
        steps, spans, "order", seconds, state, created_at, changed_at)
    VALUES (%(item)s, %(queue)s, %(user)s, %(key)s, %(verdict)s, %(strength)s, %(tiers)s, %(rubric)s, %(rationale)s, %(correction)s,
        %(steps)s, %(spans)s, %(order)s, %(seconds)s, %(state)s, %(now)s, %(now)s)
    RETURNING id
), preferences AS (
    INSERT INTO labels_preference (judgement_id, item_id, chosen, rejected)
    SELECT said.id, %(item)s, pair.chosen, pair.rejected FROM said, unnest(%(chosen)s::bigint[], %(rejected)s::bigint[]) AS pair (chosen, rejected)
), history AS (
    INSERT INTO labels_change (item_id, judgement_id, user_id, what, after, comment, at)
    SELECT %(item)s, said.id, %(user)s, %(what)s, %(after)s::jsonb, %(comment)s, %(now)s FROM said
), seat AS (
    DELETE FROM labels_claim WHERE id = %(claim)s
)
UPDATE labels_item SET labels = %(labels)s, room = %(room)s, state = %(item_state)s WHERE id = %(item)s RETURNING (SELECT id FROM said)
"""
JSON = ("tiers", "rubric", "steps", "spans")


def record_judgement(item: Item, user: User, fields: dict[str, Any], claim: int) -> Judgement:
    """A first judgement of the person on the item, its preferences and history; the claim ends, and the item stands as ``weigh`` has set it."""
    now = timezone.now()
    judgement = Judgement(item=item, queue=item.queue, user=user, created_at=now, changed_at=now, **fields)
    pairs = derive_preferences(judgement.verdict, judgement.tiers, item.rollouts)
    what, comment = said_in_history(judgement)
    values = {
        **fields,
        **{name: None if fields[name] is None else json.dumps(fields[name]) for name in JSON},
        **{"item": item.pk, "queue": item.queue_id, "user": user.pk, "claim": claim, "now": now},
        **{"labels": item.labels, "room": item.room, "item_state": str(item.state), "state": str(judgement.state), "verdict": str(judgement.verdict)},
        **{"chosen": [chosen for chosen, _ in pairs], "rejected": [rejected for _, rejected in pairs]},
        **{"what": what, "comment": comment, "after": json.dumps(snapshot_judgement(judgement))},
    }
    with connection.cursor() as cursor:
        cursor.execute(RECORD, values)
        [judgement.pk] = cursor.fetchone()
    judgement._state.adding, judgement._state.db = False, connection.alias
    return judgement


def record_again(item: Item, user: User, fields: dict[str, Any], claim: int) -> Judgement:
    """The same for an item the person has judged before: their judgement becomes what they say now, and the history keeps what it was."""
    judgement = Judgement.objects.get(item=item, user=user)
    before = snapshot_judgement(judgement)
    for name, value in {**fields, "created_at": timezone.now()}.items():
        setattr(judgement, name, value)
    judgement.save()
    sync_preferences(judgement, item)
    what, comment = said_in_history(judgement)
    Change.objects.create(item=item, judgement=judgement, user=user, what=what, before=before, after=snapshot_judgement(judgement), comment=comment)
    item.claims.filter(pk=claim).delete()
    Item.objects.same_row(item).update(labels=item.labels, room=item.room, state=item.state)
    judgement.item = item
    return judgement


def said_in_history(judgement: Judgement) -> tuple[str, str]:
    return ("skipped", judgement.rationale) if judgement.verdict == Verdict.SKIP else ("submitted", "")
