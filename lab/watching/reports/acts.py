"""What the buttons of reports do: new ones, the editor with its preview, old versions taken back, the archive, deleting."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.http import HttpResponse, JsonResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_POST

from lab.lib.costly import limit_costly_requests
from lab.lib.diff import diff_words
from lab.lib.markdown import clean_markdown_text
from lab.lib.numbers import MAX_INTEGER, parse_whole_number
from lab.lib.refusals import InputRefusal, Refusal
from lab.teams.accounts import projects
from lab.teams.accounts.requests import LabRequest
from lab.training.runs.curve_values import WORDS
from lab.watching.reports import verbs
from lab.watching.reports.blocks import OVERLAYS
from lab.watching.reports.contents import build_document
from lab.watching.reports.inserts import list_insert_columns
from lab.watching.reports.models import MESSAGE_LENGTH, TEXT_LENGTH, TITLE_LENGTH, Report, ReportVersion
from lab.watching.reports.pages import find_team_report, find_version
from lab.watching.reports.verbs import ReportConflict

WANTS_JSON = "application/json"  # of the Accept header: the editor saves without leaving the page


@require_http_methods(["GET", "HEAD", "POST"])
def write_report(request: LabRequest) -> HttpResponse:
    """A new one."""
    values = read_values(request) if request.method == "POST" else {"title": "", "text": "", "message": "", "project": request.GET.get("project", "")}
    if request.method != "POST":
        return render_editor(request, None, values, base=0)
    try:
        project = projects.parse_project(request.team, values["project"])
        report = verbs.create_report(request.team, request.user, values["title"], values["text"], project)
    except Refusal as refusal:
        return refuse_values(request, None, values, 0, refusal)
    return answer_saved(request, report, 1, f"“{report.title}” was created.")


@require_http_methods(["GET", "HEAD", "POST"])
def edit_report(request: LabRequest, report_id: int) -> HttpResponse:
    """The editor. Saving answers 409 with both texts when somebody else has saved since the version that was edited."""
    report = find_team_report(request, report_id)
    if request.method != "POST":
        version = find_version(report, request.GET.get("version"))
        values = {"title": report.title, "text": version.text, "message": "", "project": str(report.project_id or "")}
        return render_editor(request, report, values, base=report.number)
    values = read_values(request)
    base = parse_whole_number(request.POST.get("base"), MAX_INTEGER) or 0
    try:
        verbs.check_report_values(verbs.clean_line(values["title"]), values["text"], values["message"])
        project = projects.parse_project(request.team, values["project"])
        version, is_new = verbs.save_version(report, request.user, values["text"], base, values["message"])
        changed = verbs.describe_report(report, values["title"], project)
    except ReportConflict as conflict:
        return render_conflict(request, report, values, conflict)
    except Refusal as refusal:
        return refuse_values(request, report, values, base, refusal)
    words = f"Saved as version {version.number}." if is_new else "Saved." if changed else "Nothing was changed."
    return answer_saved(request, report, version.number, words)


def read_values(request: LabRequest) -> dict[str, str]:
    return {
        "title": request.POST.get("title", ""),
        "text": clean_markdown_text(request.POST.get("text", "")),
        "message": request.POST.get("message", ""),
        "project": request.POST.get("project", ""),
    }


def wants_json(request: LabRequest) -> bool:
    return request.headers.get("Accept", "") == WANTS_JSON


def answer_saved(request: LabRequest, report: Report, number: int, words: str) -> HttpResponse:
    url = reverse("report", args=[report.pk])
    if wants_json(request):
        return JsonResponse({"number": number, "words": words, "url": url, "edit": reverse("report-edit", args=[report.pk])})
    messages.success(request, words)
    return redirect(url)


def refuse_values(request: LabRequest, report: Report | None, values: dict[str, str], base: int, refusal: Refusal) -> HttpResponse:
    errors = refusal.errors if isinstance(refusal, InputRefusal) else {refusal.field: str(refusal)}
    if wants_json(request):
        return JsonResponse({"errors": errors}, status=422)
    return render_editor(request, report, values, base=base, errors=errors, status=422)


def render_conflict(request: LabRequest, report: Report, values: dict[str, str], conflict: ReportConflict) -> HttpResponse:
    """Both texts and what tells them apart; the text that was not saved is in the editor, and saving it again makes it the next version."""
    if wants_json(request):
        return JsonResponse({"conflict": str(conflict), "newest": conflict.newest.number, "text": conflict.newest.text}, status=409)
    theirs = {"newest": conflict.newest, "spans": diff_words(conflict.newest.text, conflict.text)}
    return render_editor(request, report, values, base=conflict.newest.number, theirs=theirs, status=409)


def render_editor(
    request: LabRequest,
    report: Report | None,
    values: dict[str, str],
    *,
    base: int,
    errors: dict[str, str] | None = None,
    theirs: dict[str, Any] | None = None,
    status: int = 200,
) -> HttpResponse:
    context = {
        "room": "reports",
        "report": report,
        "values": values,
        "base": base,
        "errors": errors or {},
        "theirs": theirs,
        "projects": projects.list_project_choices(request.team, values["project"]),
        "document": build_document(request.team, values["text"][:TEXT_LENGTH]),
        "limits": {"title": TITLE_LENGTH, "message": MESSAGE_LENGTH, "text": TEXT_LENGTH},
        "overlays": OVERLAYS,
        "columns": list_insert_columns(),
        "tail_words": WORDS["tail"],
    }
    return render(request, "reports/edit.html", context, status=status)


@require_POST
@limit_costly_requests()
def preview_report(request: LabRequest) -> HttpResponse:
    """How ``text`` looks, with the problems of its blocks beside them."""
    document = build_document(request.team, clean_markdown_text(request.POST.get("text", ""))[:TEXT_LENGTH])
    return render(request, "reports/preview.html", {"document": document})


@require_POST
def restore_report_version(request: LabRequest, report_id: int) -> HttpResponse:
    """The text of ``version`` as a new version."""
    report = find_team_report(request, report_id)
    old = find_old_version(request, report)
    version, is_new = verbs.restore_version(report, request.user, old)
    words = (
        f"The text of version {old.number} is version {version.number} now."
        if is_new
        else f"The newest version has the text of version {old.number} already."
    )
    messages.success(request, words)
    return redirect("report", report.pk)


def find_old_version(request: LabRequest, report: Report) -> ReportVersion:
    return find_version(report, request.POST.get("version") or str(report.number))


@require_POST
def archive_report(request: LabRequest, report_id: int) -> HttpResponse:
    report = find_team_report(request, report_id)
    verbs.set_report_archived(report, away=True)
    messages.success(request, f"“{report.title}” was archived. You can restore it from the archive at any time.")
    return redirect("report", report.pk)


@require_POST
def unarchive_report(request: LabRequest, report_id: int) -> HttpResponse:
    report = find_team_report(request, report_id)
    verbs.set_report_archived(report, away=False)
    messages.success(request, f"“{report.title}” was restored.")
    return redirect("report", report.pk)


@require_POST
def delete_archived_report(request: LabRequest, report_id: int) -> HttpResponse:
    """For good; only from the archive."""
    report = find_team_report(request, report_id)
    try:
        verbs.delete_report(report)
    except Refusal as refusal:
        messages.error(request, str(refusal))
        return redirect("report", report_id)
    messages.success(request, f"“{report.title}” and its versions were deleted.")
    return redirect(reverse("reports") + "?archived=1")
