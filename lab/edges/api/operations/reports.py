"""Reports: Markdown pages with live blocks, their versions, and their export as one file."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from django.http import HttpRequest, HttpResponseBase
from ninja import Field, Schema, Status

from lab.edges.api.base import Query, RequestBody, caller_of, make_router, one_of, require_permission
from lab.edges.api.idempotency import Key, run_idempotent_action
from lab.edges.api.operations.account import Person, serialize_person
from lab.edges.api.page_cursors import After, Limit, Page, paginate_rows, parse_after_id
from lab.edges.api.problems import make_invalid_problem
from lab.lib.costly import while_sent
from lab.lib.numbers import MAX_INTEGER
from lab.teams.accounts.addresses import build_absolute_url, team_path
from lab.teams.accounts.models import Project, Team
from lab.watching.reports import verbs
from lab.watching.reports.downloads import build_export_answer
from lab.watching.reports.markup import list_block_problems, parse_markup
from lab.watching.reports.models import MESSAGE_LENGTH, TEXT_LENGTH, TITLE_LENGTH, Report, ReportVersion
from lab.watching.reports.searching import LONGEST_SEARCH, select_reports

router = make_router("Reports")
FILE = {
    "responses": {
        200: {
            "description": "The file.",
            "content": {"text/html": {"schema": {"type": "string"}}, "text/markdown": {"schema": {"type": "string"}}},
        }
    }
}


class ReportOut(Schema):
    id: int
    title: str
    url: str
    project: int | None
    author: Person | None
    version: int = Field(description="Number of the newest version.")
    created_at: datetime
    updated_at: datetime = Field(description="When the newest version was saved.")
    archived_at: datetime | None = Field(description="When it was archived; null if it is not.")


class BlockProblemOut(Schema):
    line: int = Field(description="Line of the Markdown, from 1.")
    message: str


class ReportVersionOut(Schema):
    report: int
    number: int
    text: str = Field(description="Markdown. Fenced blocks `chart`, `table`, `runs`, `rollout` and `group` show what the lab has.")
    message: str
    author: Person | None
    created_at: datetime
    problems: list[BlockProblemOut] = Field(description="Blocks that cannot be read as they are written.")


class ReportVersionLine(Schema):
    """A version without its text."""

    number: int
    message: str
    author: Person | None
    created_at: datetime


class ReportIn(RequestBody):
    title: str = Field(min_length=1, max_length=TITLE_LENGTH, examples=["Entropy collapse"])
    text: str = Field(
        "", max_length=TEXT_LENGTH, description="Markdown.", examples=["# What happened\n\n```chart\nruns: 12, 15\nmetric: reward\n```\n"]
    )
    project: int | None = Field(None, description="Id of one of the team's projects.")


class ReportChange(RequestBody):
    """Omitted fields stay unchanged."""

    title: str | None = Field(None, min_length=1, max_length=TITLE_LENGTH)
    project: int | None = Field(None, description="Id of one of the team's projects; null takes it out of its project.")
    archived: bool | None = Field(None, description="Archives or restores it.")


class ReportVersionIn(RequestBody):
    text: str = Field(max_length=TEXT_LENGTH, description="Markdown.")
    base: int = Field(ge=1, le=MAX_INTEGER, description="Number of the version that was edited. If it is not the newest, nothing is saved (409).")
    message: str = Field("", max_length=MESSAGE_LENGTH, description="What was changed.")


def report_of(request: HttpRequest, report_id: int) -> Report:
    report: Report = one_of(Report.objects.of(caller_of(request).team).select_related("team", "author", "project"), report_id)
    return report


def version_of(request: HttpRequest, report_id: int, number: int | None) -> ReportVersion:
    report = report_of(request, report_id)
    versions = report.versions.select_related("author", "report__team", "report__author")
    version: ReportVersion = one_of(
        versions, versions.filter(number=report.number if number is None else number).values_list("pk", flat=True).first() or 0
    )
    return version


def project_of(team: Team, key: int | None) -> Project | None:
    """Raises ApiProblem for one that the team does not have."""
    if key is None:
        return None
    project = Project.objects.of(team).filter(pk=key).first()
    if project is None:
        raise make_invalid_problem("project", "your team has no such project", "give the id of one of its projects, or null")
    return project


def serialize_report(report: Report) -> dict[str, Any]:
    fields = {name: getattr(report, name) for name in ("title", "created_at", "updated_at", "archived_at")}
    author = serialize_person(report.author) if report.author else None
    url = build_absolute_url(team_path(report.team, "report", report.pk))
    return {**fields, "id": report.pk, "project": report.project_id, "author": author, "version": report.number, "url": url}


def serialize_version_line(version: ReportVersion) -> dict[str, Any]:
    author = serialize_person(version.author) if version.author else None
    return {"number": version.number, "message": version.message, "author": author, "created_at": version.created_at}


def serialize_version(version: ReportVersion) -> dict[str, Any]:
    problems = [{"line": one.line, "message": one.words} for one in list_block_problems(parse_markup(version.text))]
    return {**serialize_version_line(version), "report": version.report_id, "text": version.text, "problems": problems}


@router.get("/reports", auth=require_permission("reports.read"), response=Page[ReportOut], summary="List reports")
def list_reports(
    request: HttpRequest,
    after: After,
    limit: Limit,
    q: str = Query("", max_length=LONGEST_SEARCH, description="Words in the title, the author's address or the text."),
    archived: bool = Query(False, description="List archived reports instead."),
) -> object:
    """Newest first."""
    rows = select_reports(caller_of(request).team, q, archived=archived).filter(pk__lt=parse_after_id(after)).select_related("team").order_by("-pk")
    return paginate_rows(list(rows[: limit + 1]), limit, lambda row: row.pk, serialize_report)


@router.get("/reports/{int:report_id}", auth=require_permission("reports.read"), response=ReportOut, summary="One report")
def get_report(request: HttpRequest, report_id: int) -> object:
    """Its text is in its versions."""
    return serialize_report(report_of(request, report_id))


@router.post("/reports", auth=require_permission("reports.write"), response={201: ReportOut, 200: ReportOut}, summary="Create a report")
def make_report(request: HttpRequest, given: ReportIn, key: Key) -> object:
    """With its first version."""
    caller = caller_of(request)
    project = project_of(caller.team, given.project)

    def act() -> list[Any]:
        return [verbs.create_report(caller.team, caller.user, given.title, given.text, project).pk]

    [made], fresh = run_idempotent_action(request, caller, key, act)
    return Status(201 if fresh else 200, serialize_report(report_of(request, int(made))))


@router.patch("/reports/{int:report_id}", auth=require_permission("reports.write"), response=ReportOut, summary="Change a report")
def change_report(request: HttpRequest, report_id: int, given: ReportChange) -> object:
    """Changes its title or project, archives or restores it. Its text is changed by a new version."""
    report = report_of(request, report_id)
    sent = given.model_fields_set & {"title", "project"}
    if sent:
        project = project_of(report.team, given.project) if "project" in sent else report.project
        verbs.describe_report(report, given.title if given.title is not None else report.title, project)
    if given.archived is not None:
        verbs.set_report_archived(report, away=given.archived)
    return serialize_report(report_of(request, report_id))


@router.delete("/reports/{int:report_id}", auth=require_permission("reports.delete"), response={204: None}, summary="Delete a report")
def remove_report(request: HttpRequest, report_id: int) -> object:
    """With all its versions, for good. Only archived reports can be deleted (409)."""
    verbs.delete_report(report_of(request, report_id))
    return Status(204, None)


@router.get(
    "/reports/{int:report_id}/versions", auth=require_permission("reports.read"), response=Page[ReportVersionLine], summary="List a report's versions"
)
def list_report_versions(request: HttpRequest, report_id: int, after: After, limit: Limit) -> object:
    """Newest first, without their texts."""
    number = min(parse_after_id(after), MAX_INTEGER)
    rows = report_of(request, report_id).versions.filter(number__lt=number).select_related("author").defer("text").order_by("-number")
    return paginate_rows(list(rows[: limit + 1]), limit, lambda row: row.number, serialize_version_line)


@router.get(
    "/reports/{int:report_id}/versions/{int:number}",
    auth=require_permission("reports.read"),
    response=ReportVersionOut,
    summary="One version of a report",
)
def get_report_version(request: HttpRequest, report_id: int, number: int) -> object:
    """Its Markdown, with what is wrong in its blocks."""
    return serialize_version(version_of(request, report_id, min(number, MAX_INTEGER)))


@router.post(
    "/reports/{int:report_id}/versions",
    auth=require_permission("reports.write"),
    response={201: ReportVersionOut, 200: ReportVersionOut},
    summary="Save a version of a report",
)
def save_report_version(request: HttpRequest, report_id: int, given: ReportVersionIn) -> object:
    """If somebody has saved another version since `base`, nothing is saved: read the newest version, merge, and send its number as `base`.

    A text that the newest version has already makes no new version, so that sending twice saves once.
    """
    report = report_of(request, report_id)
    version, is_new = verbs.save_version(report, caller_of(request).user, given.text, given.base, given.message)
    return Status(201 if is_new else 200, serialize_version(version))


@router.get(
    "/reports/{int:report_id}/export",
    auth=require_permission("reports.write"),
    openapi_extra=FILE,
    response={200: None},
    summary="Export a report as one file",
)
def export_report(
    request: HttpRequest,
    report_id: int,
    format: Literal["html", "markdown"] = Query("html", description="One HTML file that needs nothing else, or the Markdown."),
    version: int | None = Query(None, ge=1, le=MAX_INTEGER, description="Number of an older version."),
) -> HttpResponseBase:
    """Charts in the HTML file are drawn with the points that the runs have now."""
    chosen = version_of(request, report_id, version)
    return while_sent(request, lambda: build_export_answer(chosen, format))
