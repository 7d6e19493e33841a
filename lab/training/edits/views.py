"""The pages of edits: the list of a run, the form, withdrawing, and the run without an edit. What belongs to another team is not found."""

from __future__ import annotations

import json
import secrets
from typing import Any

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from lab.lib.refusals import InputRefusal, Refusal
from lab.teams.accounts.requests import LabRequest
from lab.training.edits.edit_form import REASON, TOKEN, EditForm
from lab.training.edits.editable import EditSheet, build_edit_sheet
from lab.training.edits.forking import fork_without_edit
from lab.training.edits.models import RunEdit
from lab.training.edits.rows import build_edit_rows, describe_fork
from lab.training.edits.verbs import request_run_edit, withdraw_run_edit
from lab.training.runs.header import build_run_header
from lab.training.runs.models import Run
from lab.training.runs.problem_words import format_problem_sentence
from lab.training.runs.views.page import find_team_run
from trainers.contract.spec import SpecError

APPLIES = "Edit requested. It applies at the next step."


@require_safe
def show_run_edits(request: LabRequest, run_id: Any) -> HttpResponse:
    """Who changed what, why and from which step. ``?part=pending``: those that wait; ``?part=list``: the list alone."""
    run = find_team_run(request, run_id)
    part = request.GET.get("part", "")
    context = {"run": run, "rows": build_edit_rows(run), "fork": describe_fork(run)}
    if part == "pending":
        return render(request, "edits/pending.html", context)
    if part == "list":
        return render(request, "edits/list.html", context)
    return render(request, "edits/page.html", {**build_run_header(run, "config"), **context})


@require_http_methods(["GET", "HEAD", "POST"])
def edit_run(request: LabRequest, run_id: Any) -> HttpResponse:
    """The form, as a page or (from a script) for the dialog; POST asks for the edit."""
    run = find_team_run(request, run_id)
    sheet = build_edit_sheet(run)
    if request.method != "POST":
        return render_edit_form(request, sheet, EditForm(sheet, token=secrets.token_urlsafe(16)))
    form = EditForm(sheet, {key: value.replace("\0", "\u2400") for key, value in request.POST.items() if isinstance(value, str)})
    try:
        if sheet.objection:
            raise Refusal(sheet.objection)
        request_run_edit(run, request.user, form.read_changes(), form.values[REASON] or "", form.values[TOKEN] or "")
    except InputRefusal as refusal:
        form.refuse(refusal)
        return render_edit_form(request, sheet, form, 422)
    except Refusal as refusal:
        form.add_error(None, str(refusal))
        return render_edit_form(request, sheet, form, refusal.status)
    return answer_edit(request, run, APPLIES)


def render_edit_form(request: LabRequest, sheet: EditSheet, form: EditForm, status: int = 200) -> HttpResponse:
    context = {"run": sheet.run, "sheet": sheet, "form": form}
    if request.htmx:  # type: ignore[attr-defined]
        return render(request, "edits/form.html", context)  # htmx shows only what is answered with 200
    return render(request, "edits/form_page.html", {**build_run_header(sheet.run, "config"), **context}, status=status)


def answer_edit(request: LabRequest, run: Run, message: str, *, good: bool = True) -> HttpResponse:
    """To a script: what was done, and that the lists of edits are to be fetched anew. To a plain form: the list."""
    if request.htmx:  # type: ignore[attr-defined]
        said = {"lab:said": {"text": message, "tone": "success" if good else "info"}, "lab:edited": {"good": good}}
        return HttpResponse("", headers={"HX-Trigger": json.dumps(said)})
    messages.add_message(request, messages.SUCCESS if good else messages.INFO, message)
    return redirect("run-edits", run_id=run.pk)


def find_team_edit(request: LabRequest, edit_id: int) -> RunEdit:
    """The team's edit, or 404."""
    return get_object_or_404(RunEdit.objects.of(request.team).select_related("run__team", "run__parent", "author"), pk=edit_id)


@require_POST
def withdraw_edit(request: LabRequest, edit_id: int) -> HttpResponse:
    edit = find_team_edit(request, edit_id)
    try:
        held = withdraw_run_edit(edit)
    except Refusal as refusal:
        return answer_edit(request, edit.run, str(refusal), good=False)
    done = "Withdrawn." if held.state == "withdrawn" else "Withdrawing: the trainer answers at its next step."
    return answer_edit(request, edit.run, done)


@require_POST
def fork_edit(request: LabRequest, edit_id: int) -> HttpResponse:
    """The run without the edit, queued; leads to its page."""
    edit = find_team_edit(request, edit_id)
    try:
        run = fork_without_edit(edit, request.user)
    except (Refusal, SpecError) as error:
        words = " ".join(map(format_problem_sentence, error.problems)) if isinstance(error, SpecError) else str(error)
        messages.error(request, f"No run was launched: {words}")
        return redirect("run-edits", run_id=edit.run_id)
    messages.success(request, f"Queued #{run.number}, which continues #{edit.run.number} without the edit.")
    return redirect(reverse("run", args=[run.pk]))
