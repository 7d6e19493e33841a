"""Datasets from files: the file is the body, its format is told by its columns, and a worker builds version 1."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from ninja import Status

from lab.data.datasets import import_acts, importing_rows, uploads
from lab.data.datasets.formats.base import ColumnMapping
from lab.data.datasets.formats.reading import FORMATS, ignored_preference, mapped_to, recognise_format
from lab.data.datasets.raw import UnreadableFile
from lab.data.datasets.rules import DatasetRule
from lab.edges.api.base import Query, caller_of, make_router, require_permission
from lab.edges.api.operations.datasets import VersionOut, versions_shown
from lab.edges.api.problems import ApiProblem, FieldProblem, make_invalid_problem, make_validation_problem
from lab.lib.costly import under_way
from lab.lib.numbers import MAX_ID
from lab.lib.refusals import Refusal
from lab.teams.accounts.models import Project, Team

router = make_router("Datasets")
PIECE = 1 << 20  # bytes
BODY = {"requestBody": {"required": True, "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}}}
FIXES = {"skip": "send skip=true, or correct the file", "leave": "name them in leave, or give a format that uses them"}


@router.post("/datasets/import", auth=require_permission("datasets.write"), response={201: VersionOut}, summary="Import a file", openapi_extra=BODY)
def import_file(
    request: HttpRequest,
    name: str = Query(max_length=100, description="Name of the dataset.", examples=["Sums, judged elsewhere"]),
    file: str = Query("file", max_length=200, description="What the file is called, for people."),
    format: str = Query("", max_length=100, description="Name of a format; default: told by the columns.", examples=["preference"]),
    skip: bool = Query(False, description="Leave out invalid rows instead of refusing the file."),
    leave: str = Query("", max_length=5000, description="Columns that may be unused, separated by commas."),
    project: int | None = Query(None, ge=1, le=MAX_ID, description="Id of a project."),
    test_share: float = Query(DatasetRule.test_share, ge=0, le=0.9, description="Share of the prompts for the test split."),
) -> object:
    """JSON, JSON lines, CSV or Parquet, at most 50 MB. Each request makes a dataset; poll its version until its state is `ready`."""
    caller = caller_of(request)
    chosen = find_project(caller.team, project)
    with under_way(request):
        announced = int(request.META.get("CONTENT_LENGTH") or 0)
        try:
            upload = import_acts.keep_file(caller.team, file, iter(lambda: request.read(PIECE), b""), announced)
        except Refusal as refused:
            raise make_invalid_problem("the body", refused.message.rstrip("."), refused.fix.rstrip(".")) from None
        try:
            mapped, preview, ignored = look_into(caller.team, upload, format)
            agreed: dict[str, Any] = {"skip": skip, "leaves": [column.strip() for column in leave.split(",") if column.strip()]}
            if problems := import_acts.find_import_problems(name, preview, ignored, **agreed):
                raise make_validation_problem(describe_problem(field, text) for field, text in problems.items())
            rule = DatasetRule(test_share=test_share)
            version = import_acts.create_imported_dataset(caller.team, caller.user, upload, mapped, rule, name=name, project=chosen, **agreed)
        except ApiProblem:
            uploads.delete_upload(caller.team, upload.token)
            raise
    return Status(201, versions_shown([version])[0])


def look_into(team: Team, upload: uploads.Upload, format: str) -> tuple[ColumnMapping, importing_rows.ImportPreview, list[str]]:
    """The file's columns, what its rows become, and columns with preferences that would be ignored. Raises ApiProblem."""
    path = uploads.path_of(team, upload)
    known = [form.name for form in FORMATS.values() if not form.by_hand]
    if format and format not in known:
        raise make_invalid_problem("format", "there is no such format", f"use one of {', '.join(known)}, or none")
    try:
        rows = importing_rows.read_first_rows(path, upload.kind)
        mapped = mapped_to(FORMATS[format], rows) if format else recognise_format(rows)
        if mapped is None:
            raise make_invalid_problem(
                "format", "the columns are not those of a known format", f"use one of {', '.join(known)}, or import it in the browser"
            )
        if missing := FORMATS[mapped.format].missing(mapped):
            raise make_invalid_problem("format", f"{mapped.format} needs {', '.join(missing)}", "rename the columns, or import it in the browser")
        preview = importing_rows.inspect_import(path, upload.kind, mapped, upload.name)
    except UnreadableFile as error:
        raise make_invalid_problem("the body", error.message, error.fix) from None
    return mapped, preview, ignored_preference(preview.left_out, rows, mapped)


def describe_problem(field: str, text: str) -> FieldProblem:
    """The page's words, with what a program does instead of ticking a box."""
    if field in FIXES:
        return FieldProblem(field=field, message=text.split(". Select")[0], fix=FIXES[field])
    return FieldProblem(field={"file": "the body", "preference": "the body"}.get(field, field), message=text)


def find_project(team: Team, project: int | None) -> Project | None:
    found = Project.objects.of(team).filter(pk=project).first() if project is not None else None
    if project is not None and found is None:
        raise make_invalid_problem("project", "your team has no such project", "give the id of one of its projects, or none")
    return found
