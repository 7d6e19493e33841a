"""What people call a run and say about it: name, tags and notes, changed on its page, and its way into the archive and back."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_POST

from lab.lib.refusals import InputRefusal
from lab.training.runs import verbs
from lab.training.runs.header import build_run_header
from lab.training.runs.views.actions import answer_with_header
from lab.training.runs.views.page import find_team_run, read_tab, render_run_config

FIELDS = ("name", "tags", "notes")


@require_http_methods(["GET", "HEAD", "POST"])
def edit_run_about(request: HttpRequest, run_id: Any) -> HttpResponse:
    """GET from a script: the header with an input in place of the name. POST changes those of the name, tags and notes that are sent."""
    run = find_team_run(request, run_id)
    in_header = bool(request.htmx)  # type: ignore[attr-defined]
    if request.method != "POST":
        return render_header_with_input(request, run, run.name) if in_header else redirect(reverse("run-config", args=[run.pk]) + "#about")
    typed = {name: request.POST[name] for name in FIELDS if name in request.POST}
    try:
        changed = verbs.change_run_about(run, name=typed.get("name"), notes=typed.get("notes"), tags=[typed["tags"]] if "tags" in typed else None)
    except InputRefusal as refusal:
        if in_header:
            return render_header_with_input(request, run, typed.get("name", ""), str(refusal.errors.get("name", refusal)))
        return render_run_config(request, run, typed, {one.field: f"{one.message} {one.fix}".strip() for one in refusal.problems})
    if in_header:
        return answer_with_header(request, run, "Saved." if changed else "Nothing was changed.", good=changed)
    messages.success(request, "Saved." if changed else "Nothing was changed.")
    return redirect("run-config", run_id=run.pk)


def render_header_with_input(request: HttpRequest, run: Any, typed: str, error: str = "") -> HttpResponse:
    context = {**build_run_header(run, read_tab(request)), "renaming": True, "typed": typed, "name_error": error}
    return render(request, "runs/run_header.html", context)


@require_POST
def archive_run(request: HttpRequest, run_id: Any) -> HttpResponse:
    run = find_team_run(request, run_id)
    outcome = verbs.archive_runs(run.team, [run.number])
    run.refresh_from_db(fields=["archived_at", "status"])
    why = outcome.left.get(run.number)
    return answer_with_header(request, run, f"Not archived: the run is {why}." if why else "Archived. It is no longer in the list.", good=not why)


@require_POST
def unarchive_run(request: HttpRequest, run_id: Any) -> HttpResponse:
    run = find_team_run(request, run_id)
    outcome = verbs.unarchive_runs(run.team, [run.number])
    run.refresh_from_db(fields=["archived_at", "status"])
    good = bool(outcome.changed)
    return answer_with_header(request, run, "Unarchived. It is in the list again." if good else "It is not archived.", good=good)
