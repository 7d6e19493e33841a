"""Who sees what of a queue's quality.

Leads see everything. Annotators see their own line, and what others said only of items that nobody judges any more: a label that was given after
reading the others' is no second opinion. Reviewers of a queue see its labels.
"""

from __future__ import annotations

from typing import Any

from django.db.models import Exists, OuterRef, Q, QuerySet
from django.shortcuts import get_object_or_404

from lab.labelling.labels.labeller_standing import may_label, may_review
from lab.labelling.labels.models import Claim, Item, ItemState, Judgement, Queue
from lab.labelling.labels.people import open_to
from lab.lib.refusals import Refusal
from lab.teams.accounts.models import Role
from lab.teams.accounts.requests import LabRequest
from lab.teams.accounts.roles import has_team_permission, role_of

CLOSED = (ItemState.DONE, ItemState.SETTLED)  # nobody judges these any more


def find_quality_queue(request: LabRequest, queue_id: int) -> Queue:
    """The team's queue, or 404; for annotators also of one that they have no part in."""
    team, user = request.team, request.user
    seen = open_to(team, user, sees_numbers(request))
    return get_object_or_404(seen.select_related("team"), pk=queue_id)


def item_of(request: LabRequest, item_id: int) -> Item:
    team = request.team
    item = get_object_or_404(Item.objects.filter(queue__team=team).select_related("queue__team", "prompt", "final_by"), pk=item_id)
    find_quality_queue(request, item.queue_id)
    return item


def judgement_of(request: LabRequest, judgement_id: int) -> Judgement:
    team = request.team
    judgement = get_object_or_404(Judgement.objects.of(team).select_related("item", "queue__team", "user"), pk=judgement_id)
    find_quality_queue(request, judgement.queue_id)
    return judgement


def sees_numbers(request: LabRequest) -> bool:
    """Coefficients over everybody: leads, and viewers, who never label."""
    return has_team_permission(request, "label.lead") or role_of(request) == Role.VIEWER


def can_review_queue(request: LabRequest, queue: Queue) -> bool:
    try:
        may_review(queue, request.user)
    except Refusal:
        return False
    return True


def still_asked(request: LabRequest, queue: Queue) -> QuerySet[Item]:
    """Items the person could still be asked to judge: what others said of them is not shown, also to a reviewer who labels. Of leads none."""
    items = Item.objects.filter(queue=queue, state=ItemState.OPEN)
    if has_team_permission(request, "label.lead") or not labels_here(request, queue):
        return items.none()
    held = Claim.objects.filter(item=OuterRef("pk"), user=request.user)
    return items.filter(Q(room__gt=0) | Exists(held))


def labels_here(request: LabRequest, queue: Queue) -> bool:
    try:
        may_label(queue, request.user)
    except Refusal:
        return False
    return True


def others_visible(request: LabRequest, item: Item) -> bool:
    if item.state in CLOSED or role_of(request) == Role.VIEWER:
        return True
    return can_review_queue(request, item.queue) and not still_asked(request, item.queue).filter(pk=item.pk).exists()


def queue_context(request: LabRequest, queue: Queue, tab: str) -> dict[str, Any]:
    """What the frame of a queue's quality pages needs."""
    return {
        "queue": queue,
        "tab": tab,
        "room": "label",
        "reviews": can_review_queue(request, queue),
        "leads": has_team_permission(request, "label.lead"),
    }
