"""Conflicts: which there are, in which order they are decided, and taking a decision back."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.db import transaction
from django.db.models import Exists, OuterRef, Q, QuerySet

from lab.labelling.labels.labeller_standing import may_review
from lab.labelling.labels.models import Change, Item, ItemState, Judgement, Queue, Verdict
from lab.labelling.labels.settlement import SEATED, lock_item, update_item_state
from lab.lib.refusals import Refusal
from lab.teams.accounts.models import User
from lab.teams.audit.recording import record_audit_entry

STATES = {"conflict": (ItemState.CONFLICT,), "settled": (ItemState.SETTLED,), "all": (ItemState.CONFLICT, ItemState.SETTLED)}


def conflicts_of(queue: Queue, user: User, state: str = "conflict") -> QuerySet[Any]:
    """In the order they were served, each with whether it is the person's (``with_mine``)."""
    return with_mine(Item.objects.filter(queue=queue, state__in=STATES[state]), user).order_by("place", "pk")


def with_mine(items: QuerySet[Item], user: User) -> QuerySet[Any]:
    """``mine``: the person judged it and may not decide it."""
    own = Judgement.objects.filter(item=OuterRef("pk"), user=user, state__in=SEATED).exclude(verdict=Verdict.SKIP)
    return items.annotate(mine=Exists(own))


def find_next_conflict(items: QuerySet[Any], item: Item, back: bool = False) -> Item | None:
    """The next one that the person may decide, from the start again after the last; None when there is no other."""
    others = items.filter(mine=False).exclude(pk=item.pk)
    beyond = Q(place__gt=item.place) | Q(place=item.place, pk__gt=item.pk)
    if back:
        others = others.reverse()
        beyond = Q(place__lt=item.place) | Q(place=item.place, pk__lt=item.pk)
    return others.filter(beyond).first() or others.first()


def newest_decision(queue: Queue, user: User) -> Item | None:
    return Item.objects.filter(queue=queue, final_by=user, state=ItemState.SETTLED).order_by("-final_at").first()


def undo_decision(item: Item, user: User, leads: bool) -> None:
    """Takes a decision back; the item is again what its judgements make of it. Raises Refusal unless it is one's own, or the person leads."""
    with transaction.atomic():
        item = lock_item(item.pk)
        may_review(item.queue, user)
        if item.state != ItemState.SETTLED:
            raise Refusal("This item is not decided.", "Reload the page.", status=403)
        if item.final_by_id != user.pk and not leads:
            raise Refusal("Someone else decided this item.", "Ask them or the manager of the queue to undo it.", status=403)
        before = item.final
        cleared: dict[str, str | datetime | None] = {"final": None, "final_by": None, "final_at": None, "final_comment": ""}
        for name, value in cleared.items():
            setattr(item, name, value)
        item.state = ItemState.OPEN
        item.save(update_fields=[*cleared, "state"])
        Change.objects.create(item=item, user=user, what="undone", before=before)
        update_item_state(item)
        record_audit_entry("label.undecide", item, team=item.queue.team, actor=user, label=f"item {item.pk} of {item.queue}", queue=item.queue_id)
