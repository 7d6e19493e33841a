"""Reports of the team: the list, one report in any of its versions, what changed between two, and its file."""

from __future__ import annotations

from django.core.paginator import Paginator
from django.http import Http404, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import get_object_or_404, render
from django.views.decorators.http import require_safe

from lab.lib.costly import limit_costly_requests
from lab.lib.diff import diff_words
from lab.lib.numbers import MAX_INTEGER, parse_whole_number
from lab.teams.accounts import projects
from lab.teams.accounts.requests import LabRequest
from lab.teams.accounts.roles import has_team_permission
from lab.watching.reports.contents import build_document
from lab.watching.reports.downloads import FORMATS, build_export_answer
from lab.watching.reports.models import Report, ReportVersion
from lab.watching.reports.searching import LONGEST_SEARCH, select_reports

PAGE = 50
VERSIONS = 100  # of a page of versions


@require_safe
def list_reports(request: LabRequest) -> HttpResponse:
    """``?q=`` searches, ``?project=`` narrows, ``?archived=1`` shows the archive."""
    words = request.GET.get("q", "").replace("\0", "").strip()[:LONGEST_SEARCH]
    archived = "archived" in request.GET
    project = projects.clean_project_filter(request.team, request.GET.get("project", ""))
    rows = Paginator(select_reports(request.team, words, archived=archived, project=project), PAGE)
    counts = Report.objects.of(request.team)
    context = {
        "room": "reports",
        "page": rows.get_page(parse_whole_number(request.GET.get("page"), 10**6) or 1),
        "words": words,
        "archived": archived,
        "project": project,
        "projects": projects.list_project_choices(request.team, project),
        "put_away": counts.exclude(archived_at=None).count(),
        "any": counts.exists(),
        "may_write": has_team_permission(request, "reports.write"),
    }
    return render(request, "reports/list.html", context)


def find_team_report(request: LabRequest, report_id: int) -> Report:
    """Raises Http404 for another team's, and for a number that is no id."""
    return get_object_or_404(Report.objects.of(request.team).select_related("author", "project", "team"), pk=report_id)


def find_version(report: Report, text: str | None) -> ReportVersion:
    """The version of that number, the newest without one. Raises Http404."""
    number = report.number if not text else parse_whole_number(text, MAX_INTEGER, 1)
    versions = report.versions.select_related("author", "report__team", "report__author")
    return get_object_or_404(versions, number=-1 if number is None else number)


@require_safe
def show_report(request: LabRequest, report_id: int) -> HttpResponse:
    """``?version=`` an older one; ``?part=live`` only what its blocks show now."""
    report = find_team_report(request, report_id)
    version = find_version(report, request.GET.get("version"))
    document = build_document(request.team, version.text)
    context = {"room": "reports", "report": report, "version": version, "document": document}
    if request.GET.get("part") == "live":
        return render(request, "reports/body.html", context)
    context |= {
        "is_newest": version.number == report.number,
        "open_runs": [run.number for run in document.runs if run.is_open],
        "may_write": has_team_permission(request, "reports.write"),
        "may_delete": has_team_permission(request, "reports.delete"),
    }
    return render(request, "reports/report.html", context)


@require_safe
def list_versions(request: LabRequest, report_id: int) -> HttpResponse:
    """Every version with who saved it; ``?from=&to=`` also what changed between two, by default from the one before to the newest."""
    report = find_team_report(request, report_id)
    after = find_version(report, request.GET.get("to"))
    before = find_version(report, request.GET["from"]) if request.GET.get("from") else report.versions.filter(number__lt=after.number).first()
    page = Paginator(report.versions.select_related("author").defer("text"), VERSIONS)
    context = {
        "room": "reports",
        "report": report,
        "page": page.get_page(parse_whole_number(request.GET.get("page"), 10**6) or 1),
        "before": before,
        "after": after,
        "spans": diff_words(before.text, after.text) if before else [],
        "may_write": has_team_permission(request, "reports.write"),
    }
    return render(request, "reports/versions.html", context)


@require_safe
@limit_costly_requests()
def export_report(request: LabRequest, report_id: int) -> HttpResponseBase:
    """``?format=`` html, one file that needs nothing else, or markdown; ``?version=`` an older one. Recorded in the audit log."""
    report = find_team_report(request, report_id)
    version = find_version(report, request.GET.get("version"))
    form = request.GET.get("format", "html")
    if form not in FORMATS:
        raise Http404("reports are exported as html or markdown")
    return build_export_answer(version, form)
