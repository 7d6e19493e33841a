"""Blocks without knowing how they are written: what the editor's Insert dialog chooses from, and "Add to report" on other pages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.contrib import messages
from django.http import HttpResponse, JsonResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_safe

from lab.lib.refusals import Refusal
from lab.rollouts.comparison.chart_choice import FIRST, count_runs_by_metric
from lab.rollouts.comparison.compared_runs import read_chosen_runs
from lab.teams.accounts import projects
from lab.teams.accounts.requests import LabRequest
from lab.training.runs.columns import FIXED, KNOWN, RunColumn
from lab.training.runs.listing import LONGEST_SEARCH, RunQuery, filter_matching_runs
from lab.watching.reports import verbs
from lab.watching.reports.blocks import DRAWN, KINDS, READERS, USUAL_COLUMNS, parse_block, write_block
from lab.watching.reports.contents import build_document
from lab.watching.reports.models import Report

OFFERED_RUNS, OFFERED_REPORTS = 30, 50
ADDED = {"chart": "a chart", "table": "a table of runs", "runs": "a list of runs", "rollout": "a rollout", "group": "a group of rollouts"}


def list_insert_columns() -> list[tuple[RunColumn, bool]]:
    """What a table can show besides the run's name, with whether it usually does."""
    return [(column, name in USUAL_COLUMNS) for name, column in KNOWN.items() if name not in DRAWN and name != FIXED]


@require_safe
def list_report_choices(request: LabRequest) -> JsonResponse:
    """The runs that ``?find=`` finds, the newest first, and the metrics of those that are chosen (``?run=``)."""
    words = request.GET.get("find", "").replace("\0", "").strip()[:LONGEST_SEARCH]
    runs = filter_matching_runs(request.team, RunQuery({"q": words} if words else {}))[:OFFERED_RUNS]
    chosen = read_chosen_runs(request.team, request.GET.getlist("run"))
    names = count_runs_by_metric(chosen.runs) if chosen.runs else {}
    ordered = [*(name for name in FIRST if name in names), *(name for name in names if name not in FIRST)]
    body = {
        "runs": [{"number": run.number, "name": run.name, "status": run.status} for run in runs],
        "metrics": [{"name": name, "runs": names[name]} for name in ordered],
    }
    return JsonResponse(body, headers={"Cache-Control": "no-store"})


@require_http_methods(["GET", "HEAD", "POST"])
def add_block(request: LabRequest) -> HttpResponse:
    """The block that the address says (``?kind=`` and its settings), and the reports it can be added to; posted, it goes to the end of one."""
    given = request.POST if request.method == "POST" else request.GET
    kind = given.get("kind", "")
    block = compose_block(kind, given)
    if not block:
        messages.error(request, "There is nothing to add: open a chart, a comparison or a rollout and choose Add to report there.")
        return redirect("reports")
    values = {"title": given.get("title", ""), "report": given.get("report", "")}
    if request.method == "POST":
        try:
            return redirect(add_to_report(request, kind, block, values))
        except Refusal as refusal:
            return render_adding(request, kind, block, values, str(refusal), 422)
    return render_adding(request, kind, block, values)


def compose_block(kind: str, given: Mapping[str, str]) -> str:
    """The block as Markdown; empty where it would be none. A chart's own ``title`` is no setting here: the form has one for a new report."""
    if kind not in KINDS:
        return ""
    settings = {name: given[name].replace("\0", "")[:1000] for name in READERS[kind][1] if name != "title" and given.get(name)}
    block = write_block(kind, settings)
    return block if parse_block(kind, "\n".join(block.split("\n")[1:-1]), 1).block else ""


def add_to_report(request: LabRequest, kind: str, block: str, values: dict[str, str]) -> str:
    """Where it was added. Raises Refusal."""
    if values["report"] == "new":
        report = verbs.create_report(request.team, request.user, values["title"], f"{block}\n")
        messages.success(request, f"“{report.title}” was created with {ADDED[kind]}.")
    else:
        key = projects.key_of(values["report"])
        found = Report.objects.of(request.team).filter(pk=key, archived_at=None).first() if key else None
        if found is None:
            raise Refusal("Choose a report, or create a new one.", status=422)
        report = found
        verbs.append_block(report, request.user, block, f"Added {ADDED[kind]}")
        messages.success(request, f"{ADDED[kind].capitalize()} was added to “{report.title}”.")
    return f"{reverse('report', args=[report.pk])}#end"


def render_adding(request: LabRequest, kind: str, block: str, values: dict[str, str], error: str = "", status: int = 200) -> HttpResponse:
    offered = Report.objects.of(request.team).filter(archived_at=None).order_by("-updated_at")[:OFFERED_REPORTS]
    context: dict[str, Any] = {
        "room": "reports",
        "kind": kind,
        "block": block,
        "words": ADDED[kind],
        "settings": [line.partition(": ")[::2] for line in block.split("\n")[1:-1]],
        "reports": offered,
        "values": values,
        "error": error,
        "document": build_document(request.team, block),
    }
    return render(request, "reports/add.html", context, status=status)
