"""One act on the runs that are ticked in the list: how many it changed, why others were left alone, and what undoes it."""

from __future__ import annotations

from collections.abc import Mapping

from django.contrib import messages
from django.http import Http404, HttpResponse, JsonResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_POST

from lab.lib.refusals import Refusal
from lab.teams.accounts.requests import LabRequest
from lab.training.runs import verbs
from lab.training.runs.run_numbers import read_run_numbers
from lab.training.runs.verbs import BulkOutcome

SHOWN_NUMBERS = 6  # of the runs that were left alone for one reason
SAID = {
    "stop": "Stop requested for {runs}.",
    "resume": "Queued {runs} again, from the last checkpoint of each.",
    "archive": "Archived {runs}.",
    "unarchive": "Unarchived {runs}.",
    "tag": "Tagged {runs} “{tag}”.",
    "untag": "Removed the tag “{tag}” from {runs}.",
}
UNDOES = {"archive": "unarchive", "unarchive": "archive", "tag": "untag", "untag": "tag"}  # a stop is undone by resuming each run


@require_POST
def act_on_runs(request: LabRequest) -> HttpResponse:
    """``act`` one of SAID, ``run`` the numbers, ``tag`` for tagging. Scripts get JSON; a plain form goes back to the list."""
    act, tag = request.POST.get("act", ""), request.POST.get("tag", "")
    if act not in SAID:
        raise Http404("no such act")
    try:
        outcome = verbs.act_on_runs(request.team, act, read_run_numbers(request.POST), tag)
    except Refusal as refusal:
        if refusal.status == 404:
            raise Http404(str(refusal)) from None
        errors = getattr(refusal, "errors", None)
        return answer_bulk_act(request, " ".join(errors.values()) if errors else str(refusal), "error", refusal.status)
    text, tone = describe_outcome(act, " ".join(tag.split()), outcome), "success" if outcome.changed else "info"
    undo = {"act": UNDOES[act], "runs": [run.number for run in outcome.changed], "tag": tag} if act in UNDOES and outcome.changed else None
    return answer_bulk_act(request, text, tone, undo=undo)


def describe_outcome(act: str, tag: str, outcome: BulkOutcome) -> str:
    count = len(outcome.changed)
    runs = f"{count} run{'' if count == 1 else 's'}" if count else "no runs"
    by_reason: dict[str, list[int]] = {}
    for number, why in outcome.left.items():
        by_reason.setdefault(why, []).append(number)
    left = "; ".join(f"{format_run_numbers(numbers)} ({why})" for why, numbers in by_reason.items())
    return SAID[act].format(runs=runs, tag=tag) + (f" Left unchanged: {left}." if left else "")


def format_run_numbers(numbers: list[int]) -> str:
    words = ", ".join(f"#{number}" for number in numbers[:SHOWN_NUMBERS])
    more = len(numbers) - SHOWN_NUMBERS
    return f"{words} and {more} more" if more > 0 else words


def answer_bulk_act(request: LabRequest, text: str, tone: str, status: int = 200, undo: Mapping[str, object] | None = None) -> HttpResponse:
    if "application/json" in request.headers.get("Accept", ""):
        return JsonResponse({"text": text, "tone": tone, "undo": undo}, status=status, headers={"Cache-Control": "no-store"})
    messages.add_message(request, {"success": messages.SUCCESS, "error": messages.ERROR}.get(tone, messages.INFO), text)
    return redirect("runs")
