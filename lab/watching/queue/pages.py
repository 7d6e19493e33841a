"""The queue page, and what people change there. One address shows the whole page or only the part that is fetched anew."""

from __future__ import annotations

import json
from typing import Any

from django.contrib import messages
from django.http import Http404, HttpResponse
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.views.decorators.http import require_POST, require_safe

from lab.lib.numbers import MAX_INTEGER, parse_whole_number
from lab.lib.refusals import Refusal
from lab.teams.accounts.models import Team
from lab.teams.accounts.requests import LabRequest, wants_fragment
from lab.training.runs.models import Priority
from lab.training.runs.placement import list_usable_queues
from lab.training.runs.queue_moves import Move, QueueChange, change_priority, move_run, move_to_queue
from lab.watching.queue.rows import build_queue_overview

MOST_SHOWN = 200  # waiting runs of a queue
CHOICES = {str(priority.value): priority for priority in Priority}


@require_safe
def show_queue(request: LabRequest) -> HttpResponse:
    return render_queue(request, fragment=wants_fragment(request))


def render_queue(request: LabRequest, *, fragment: bool) -> HttpResponse:
    context = {
        "room": "queue",
        "overview": build_queue_overview(request.team),
        "priorities": [(priority.value, priority.label) for priority in Priority],
        "queues": list_usable_queues(request.team),
        "shown": f":{MOST_SHOWN}",
        "most_shown": MOST_SHOWN,
    }
    return TemplateResponse(request, "queue/page.html" + ("#queue" if fragment else ""), context)


@require_POST
def change_queue(request: LabRequest) -> HttpResponse:
    """``run`` is a number; ``act`` a Move (``before`` with the number of the other run), ``priority`` or ``queue`` with their value."""
    try:
        change = apply_change(request.team, request.POST)
        words, tone = change.words, "success" if change.changed else "info"
    except Refusal as refusal:
        if refusal.status == 404:
            raise Http404(str(refusal)) from None
        words, tone = " ".join(f"{one.message} {one.fix}".strip() for one in refusal.problems) or str(refusal), "error"
    if not request.htmx:
        messages.add_message(request, {"success": messages.SUCCESS, "error": messages.ERROR}.get(tone, messages.INFO), words)
        return redirect("run-queue")
    response = render_queue(request, fragment=True)
    response["HX-Trigger"] = json.dumps({"lab:said": {"text": words, "tone": tone}})
    return response


def apply_change(team: Team, sent: Any) -> QueueChange:
    """Raises Refusal, and Http404 for what is no act or no run."""
    number, act = parse_whole_number(sent.get("run", ""), MAX_INTEGER), sent.get("act", "")
    if number is None:
        raise Http404("no such run")
    if act == "priority" and sent.get("priority") in CHOICES:
        return change_priority(team, number, CHOICES[sent["priority"]])
    if act == "queue":
        return move_to_queue(team, number, sent.get("queue", "").replace("\0", "")[:50])
    if act not in list(Move):
        raise Http404("no such act")
    return move_run(team, number, Move(act), parse_whole_number(sent.get("before", ""), MAX_INTEGER))
