"""Files people bring: uploaded, looked at under a mapping of columns, and made a dataset with a frozen version 1 once they say so."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.contrib import messages
from django.http import HttpResponse, QueryDict
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_http_methods

from lab.data.datasets import import_acts, importing_rows, rule_form, uploads
from lab.data.datasets.formats.base import ColumnMapping, list_filled_columns
from lab.data.datasets.formats.reading import (
    BY_HAND,
    FORMATS,
    KNOWN,
    flatten_rows,
    guess_mapping,
    ignored_preference,
    mapped_to,
    recognise_format,
)
from lab.data.datasets.models import Form
from lab.data.datasets.pages import by_field
from lab.data.datasets.raw import KINDS, UnreadableFile
from lab.data.datasets.row_diff import make_diff_entry
from lab.data.datasets.row_display import build_row_display
from lab.data.datasets.rules import DatasetRule, RuleError
from lab.lib.refusals import Refusal
from lab.rollouts.trajectories.text_pieces import escape_invisible_text
from lab.teams.accounts import projects
from lab.teams.accounts.requests import LabRequest

PAGE = "datasets/import.html"


@require_http_methods(["GET", "HEAD", "POST"])
def import_dataset_file(request: LabRequest) -> HttpResponse:
    """The form of the file; with ``?upload=`` the form of the mapping. POST with a file keeps it, with a mapping makes the dataset."""
    params = request.POST if request.method == "POST" else request.GET
    if request.method == "POST" and "upload" not in params:
        return receive_upload(request)
    token = params.get("upload", "")
    upload = uploads.find_upload(request.team, token)
    if upload is None:
        problem = "This upload has expired: uploads are kept for a day. Choose the file again." if token else ""
        return show_import_form(request, problem, 404 if token else 200)
    return show_mapping_form(request, upload, params)


def show_import_form(request: LabRequest, problem: str = "", status: int = 200) -> HttpResponse:
    context = {"room": "datasets", "problem": problem, "most": uploads.MOST_BYTES, "known": [form.title for form in KNOWN], "kinds": KINDS.values()}
    return render(request, PAGE, context, status=status)


def receive_upload(request: LabRequest) -> HttpResponse:
    sent = request.FILES.get("file")
    if sent is None:
        return show_import_form(request, "No file selected. Choose one.", 422)
    try:
        upload = import_acts.keep_file(request.team, str(sent.name), sent.chunks(), sent.size or 0)
    except Refusal as refusal:
        return show_import_form(request, str(refusal), refusal.status if refusal.field == "file" else 422)
    return redirect(f"{reverse('dataset-import')}?upload={upload.token}")


def parse_column_mapping(params: QueryDict, rows: list[Any]) -> ColumnMapping:
    """The mapping that was sent. Without one, and where another format was just chosen, the columns are found by their names."""
    form = FORMATS.get(params.get("format", ""))
    if form is None:
        return recognise_format(rows) or guess_mapping(rows)
    if not (form.by_hand or form.chooses) or params.get("before", form.name) != form.name:
        return mapped_to(form, rows, settings=None if params.get("before", form.name) != form.name else collect_prefixed_fields(params, "setting_"))
    columns = collect_prefixed_fields(params, "column_")
    settings = (
        collect_prefixed_fields(params, "setting_") if params.get("said_by", said_by(columns)) == said_by(columns) else {}
    )  # values of another column by now
    return mapped_to(form, rows, columns, settings)


def said_by(columns: Mapping[str, str]) -> str:
    """The column whose values the settings name."""
    return columns.get("preference") or columns.get("label") or ""


def collect_prefixed_fields(params: QueryDict, prefix: str) -> dict[str, str]:
    return {name.removeprefix(prefix): str(params[name]).replace("\0", "").strip()[:200] for name in params if name.startswith(prefix)}


def show_mapping_form(request: LabRequest, upload: uploads.Upload, params: QueryDict) -> HttpResponse:
    path = uploads.path_of(request.team, upload)
    try:
        rows = importing_rows.read_first_rows(path, upload.kind)
        mapped = parse_column_mapping(params, rows)
        form = FORMATS[mapped.format]
        seen = None if form.missing(mapped) else importing_rows.inspect_import(path, upload.kind, mapped, upload.name)
    except UnreadableFile as error:
        return show_import_form(request, str(import_acts.describe_unreadable_file(upload, error)), error.status)
    ignored = ignored_preference(seen.left_out, rows, mapped) if seen else []
    errors: dict[str, str] = {}
    if request.method == "POST" and params.get("act") == "make":
        agreed = import_agreement(params)
        errors = import_acts.find_import_problems(params.get("name", ""), seen, ignored, **agreed)
        errors |= projects.find_project_problem(request.team, params.get("project", ""))
        if not errors and seen is not None:
            try:
                rule = rule_form.parse_rule_form(params, DatasetRule())
                project = projects.parse_project(request.team, params.get("project", ""))
                own = {"name": params.get("name", ""), "project": project, **agreed}
                version = import_acts.create_imported_dataset(request.team, request.user, upload, mapped, rule, **own)
                messages.success(request, f"{upload.name} is being imported.")
                return redirect("version", version.pk)
            except RuleError as error:
                errors = by_field(error.problems)
    context: dict[str, Any] = {
        "room": "datasets",
        "upload": upload,
        "kind": KINDS[upload.kind],
        **mapping_shown(rows, mapped),
        "seen": seen,
        "ignored": [escape_invisible_text(name) for name in ignored],
        "left_out": [(name, escape_invisible_text(name), count) for name, count in sorted(seen.left_out.items())] if seen else [],
        "samples": [build_row_display(make_diff_entry(row), {}) for row in seen.samples] if seen else [],
        "unlisted": seen.wrong - len(seen.broken) if seen else 0,
        "errors": errors,
        "leave": params.get("leave") == "1",
        "skip": params.get("skip") == "1",
        "name": params.get("name", upload.name.rsplit(".", 1)[0])[:100],
        "values": rule_form.build_rule_inputs(DatasetRule(), params),
        "project": params.get("project", ""),
        "projects": projects.list_project_choices(request.team, params.get("project")),
    }
    return render(request, PAGE, context, status=422 if errors else 200)


def mapping_shown(rows: list[Any], mapped: ColumnMapping) -> dict[str, Any]:
    """What the page shows of a mapping: the format, the column of each part, and what a person may choose."""
    form = FORMATS[mapped.format]
    known = recognise_format(rows)
    filled = list_filled_columns(flatten_rows(form, rows))
    missing = form.missing(mapped)
    return {
        "format": form,
        "form": Form(form.form).label,
        "recognised": known is not None and known.format == form.name,
        "known": [(other.name, other.title) for other in KNOWN],
        "by_hand": [(other.name, other.title) for other in BY_HAND],
        "chosen": form.by_hand or form.chooses,
        "parts": [
            (part, mapped.columns.get(part.name, ""), escape_invisible_text(mapped.columns.get(part.name, "")), part.name in missing)
            for part in form.parts
        ],
        "settings": [(name, words, mapped.settings.get(name, ""), name in missing) for name, words in form.settings],
        "filled_columns": filled,
        "said_by": said_by(mapped.columns),
        "missing": [format_part_label(part.name) for part in form.parts if part.name in missing]
        + [words for name, words in form.settings if name in missing],
        "shown_columns": [escape_invisible_text(name) for name in filled],
    }


def format_part_label(part: str) -> str:
    """The label of a part's field."""
    return part.replace("_", " ").capitalize()


def import_agreement(params: QueryDict) -> dict[str, Any]:
    """What the person agreed to leave out: invalid rows (``skip``) and columns (``leaves``)."""
    return {"skip": params.get("skip") == "1", "leaves": params.getlist("left_out") if params.get("leave") == "1" else []}
