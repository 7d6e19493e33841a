"""The team's bin: the question before runs go there, the list of what is there, restoring and deleting now."""

from __future__ import annotations

from django.conf import settings
from django.contrib import messages
from django.core.paginator import Paginator
from django.db.models import F
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from lab.lib.clock import database_now
from lab.lib.refusals import Refusal
from lab.models.bin.freed import Freed, count_freed
from lab.models.bin.hindrances import find_bin_objections, find_purge_objections
from lab.models.bin.verbs import order_purge, put_runs_in_bin, restore_runs
from lab.teams.accounts.requests import LabRequest
from lab.training.runs.models import HEAVY, Run
from lab.training.runs.run_numbers import read_run_numbers
from lab.training.runs.verbs import BulkOutcome, find_chosen_runs

PAGE = 50


@require_safe
def show_bin(request: LabRequest) -> HttpResponse:
    runs = Run.objects.in_bin(request.team).select_related("binned_by").defer(*HEAVY).order_by(F("binned_at").desc(), "-number")
    page = Paginator(runs, PAGE).get_page(request.GET.get("page"))
    shown = list(page.object_list)
    freed, objections = count_freed(request.team, shown), find_purge_objections(request.team, shown)
    now = database_now()
    context = {
        "room": "runs",
        "page": page,
        "rows": [(run, freed[run.pk], count_days_left(run, now), objections.get(run.pk, "")) for run in shown],
        "days": settings.BIN_DAYS,
    }
    return render(request, "bin/bin.html", context)


def count_days_left(run: Run, now: object) -> int:
    """Days that have begun count; 0: it is due."""
    left = (run.purge_at - now).total_seconds()  # type: ignore[operator]
    return max(0, -int(-left // 86_400))


@require_http_methods(["GET", "HEAD", "POST"])
def put_in_bin(request: LabRequest) -> HttpResponse:
    """GET says what deleting the runs would free and which cannot be; POST puts them in the bin and offers to undo it."""
    if request.method == "POST":
        outcome = put_runs_in_bin(request.team, request.user, require_run_numbers(request))
        tell_outcome(request, "Put {runs} in the bin.", outcome, undo=True)
        return redirect("runs")
    numbers = read_run_numbers(request.GET)
    runs = find_chosen_runs(request.team, numbers) if numbers else []
    objections = find_bin_objections(request.team, runs)
    freed = count_freed(request.team, [run for run in runs if run.pk not in objections])
    context = {
        "room": "runs",
        "going": [(run, freed[run.pk]) for run in runs if run.pk in freed],
        "refused": [(run, objections[run.pk]) for run in runs if run.pk in objections],
        "total": sum(freed.values(), Freed()),
        "days": settings.BIN_DAYS,
    }
    return render(request, "bin/put.html", context)


@require_POST
def restore_from_bin(request: LabRequest) -> HttpResponse:
    outcome = restore_runs(request.team, require_run_numbers(request))
    tell_outcome(request, "Restored {runs}.", outcome)
    return redirect("runs" if outcome.changed else "bin")


@require_POST
def delete_from_bin(request: LabRequest) -> HttpResponse:
    tell_outcome(request, "Deleting {runs}. A worker does it within seconds.", order_purge(request.team, require_run_numbers(request)))
    return redirect("bin")


def require_run_numbers(request: LabRequest) -> list[int]:
    """Raises Refusal."""
    if numbers := read_run_numbers(request.POST):
        return numbers
    raise Refusal("No run is selected.", "Select runs in the list.", "run", status=422)


def tell_outcome(request: LabRequest, words: str, outcome: BulkOutcome, *, undo: bool = False) -> None:
    changed = [run.number for run in outcome.changed]
    if changed:
        runs = f"#{changed[0]}" if len(changed) == 1 else f"{len(changed)} runs"
        # The extra tags of a message are the numbers that its toast offers to restore (templates/toasts.html).
        messages.success(request, words.format(runs=runs), extra_tags=" ".join(map(str, changed)) if undo else "")
    for number, why in outcome.left.items():
        messages.warning(request, f"#{number} was left alone: {why}.")
