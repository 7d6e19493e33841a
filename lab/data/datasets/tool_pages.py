"""A dataset tool applied to a version: the form with what the tool would make of the first rows beside it, and the version that it becomes."""

from __future__ import annotations

import secrets
from typing import Any

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_safe

from lab.data.datasets.models import VersionState
from lab.data.datasets.row_diff import make_diff_entry
from lab.data.datasets.row_display import build_row_display, names_of
from lab.data.datasets.tool_form import ToolForm
from lab.data.datasets.tool_plan import ToolPlan
from lab.data.datasets.tool_rows import preview_tool
from lab.data.datasets.version_pages import get_team_version
from lab.lib.refusals import Refusal
from lab.teams.accounts.requests import LabRequest
from lab.training.runs.form_tokens import act_once_per_token
from lab.training.workers.models import ANALYSIS, Worker


@require_http_methods(["GET", "HEAD", "POST"])
def apply_version_tool(request: LabRequest, version_id: int) -> HttpResponse:
    """The form (``?tool=`` and every other input); POST makes a version of another dataset and goes to its page."""
    version = get_team_version(request, version_id)
    form = ToolForm(version, request.POST if request.method == "POST" else request.GET)
    if request.method == "POST":
        try:
            if plan := form.check():
                token = f"dataset-tool/{form.read_text('token')[:64]}"
                return redirect(act_once_per_token(request, token, lambda: make_tool_version(request, form, plan)))
        except Refusal as refusal:
            form.errors["form"] = str(refusal)
    context: dict[str, Any] = {
        "room": "datasets",
        "version": version,
        "dataset": version.dataset,
        "form": form,
        "ready": version.state == VersionState.READY,
        "token": secrets.token_hex(16),
        "served": Worker.objects.serving(ANALYSIS).exists(),
    }
    return render(request, "datasets/tool.html", context, status=422 if request.method == "POST" else 200)


def make_tool_version(request: LabRequest, form: ToolForm, plan: ToolPlan) -> str:
    """The address of the version that is made."""
    version = form.make_version(plan, request.user)
    messages.success(request, f"{version} is being made.")
    return reverse("version", args=[version.pk])


@require_safe
def preview_version_tool(request: LabRequest, version_id: int) -> HttpResponse:
    """A piece of the page: what the tool makes of the first rows under the form's settings. Nothing is stored."""
    version = get_team_version(request, version_id)
    form = ToolForm(version, request.GET)
    try:
        plan = form.read_plan()
        preview = preview_tool(version, plan) if plan else None
    except Refusal as refusal:
        return render(request, "datasets/tool_preview.html", {"refusal": str(refusal)})
    context: dict[str, Any] = {"form": form, "preview": preview}
    if preview:
        names = names_of(request.team, {user for row in preview.samples for user in row.labellers})
        context |= {"counts": preview.counts.as_json(), "dropped": preview.counts.dropped.total()}
        context |= {"samples": [build_row_display(make_diff_entry(row), names) for row in preview.samples]}
    return render(request, "datasets/tool_preview.html", context)
