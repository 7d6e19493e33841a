"""The page people label on: one item after the other, the next one always there. What it asks of the server is in ``verbs``."""

from __future__ import annotations

from typing import Any

from django.http import HttpResponse
from django.shortcuts import get_object_or_404
from django.template.response import TemplateResponse
from django.urls import reverse
from django.views.decorators.http import require_safe

from lab.labelling.labels import keymap
from lab.labelling.labels.guidelines import render_guidelines
from lab.labelling.labels.listing import other_queues
from lab.labelling.labels.models import Change, Judgement, JudgementState, Queue
from lab.labelling.labels.safety import HARMFUL
from lab.lib.numbers import parse_whole_number
from lab.teams.accounts.models import User
from lab.teams.accounts.requests import LabRequest
from lab.teams.accounts.roles import has_team_permission

VERBS = ("next", "submit", "draft", "renew", "release", "undo", "mine", "revise", "keys")
ASKED = ("id", "name", "kind", "blind", "strength", "rationale", "correction", "steps", "spans", "rubric", "skipping")
MOST = 20  # returned answers and other queues listed
REASONS = (
    "I cannot tell which is better",
    "I do not know the subject",
    "The prompt is unclear or broken",
    HARMFUL,
    "Display problem",
)


@require_safe
def show_labelling_page(request: LabRequest, queue_id: int) -> HttpResponse:
    """``?item=`` opens the person's own answer to that item, to be revised. Whether they may label now is said by the verbs, in words."""
    queue = get_object_or_404(Queue.objects.of(request.team), pk=queue_id)
    returned = sent_back(queue, request.user)
    context = {
        "queue": queue,
        "room": "label",
        "leads": has_team_permission(request, "label.lead"),
        "guidelines": render_guidelines(queue.guidelines) if queue.guidelines.strip() else "",
        "returned": returned,
        "others": other_queues(queue, request.user)[:MOST],
        "reasons": list(enumerate(REASONS, 1)),
        "kind_script": f"labelling/{queue.kind}.js",
        "page": {
            "person": request.user.pk,
            "queue": {name: getattr(queue, name) for name in ASKED},
            "urls": {verb: reverse(f"label-{verb}", args=[queue.pk]) for verb in VERBS},
            "revise": parse_whole_number(request.GET.get("item")),
            "key_map": keymap.load_key_map(request.user, queue.kind),
            "returned": {str(judgement.item_id): words for judgement, words in returned},
        },
    }
    return TemplateResponse(request, "labels/work.html", context)


def sent_back(queue: Queue, user: User) -> list[tuple[Judgement, str]]:
    """The person's answers that a reviewer sent back, oldest first, each with who did and why."""
    rows = list(Judgement.objects.filter(queue=queue, user=user, state=JudgementState.RETURNED).order_by("changed_at")[:MOST])
    changes = Change.objects.filter(judgement__in=rows, what="returned").select_related("user").order_by("pk")
    why: dict[Any, str] = {}
    for change in changes:
        why[change.judgement_id] = f"Sent back by {change.user or 'a reviewer'}{f': {change.comment}' if change.comment else '.'}"
    return [(row, why.get(row.pk, "Sent back.")) for row in rows]
