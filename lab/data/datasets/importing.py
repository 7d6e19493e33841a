"""Files people bring: uploaded, looked at under a mapping of columns, and made a dataset with a frozen version 1 once they say so."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from django.contrib import messages
from django.db import transaction
from django.http import HttpResponse, QueryDict
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_http_methods

from lab.data.datasets import importing_rows, rule_form, storage_room, uploads
from lab.data.datasets.file_reader import detect_kind_in_child
from lab.data.datasets.formats.base import ColumnMapping, list_filled_columns
from lab.data.datasets.formats.reading import (
    BY_HAND,
    FORMATS,
    KNOWN,
    flatten_rows,
    form_of,
    guess_mapping,
    ignored_preference,
    mapped_to,
    recognise_format,
)
from lab.data.datasets.freezing import freeze_next_version
from lab.data.datasets.models import Dataset, Form, Source
from lab.data.datasets.pages import by_field
from lab.data.datasets.raw import KINDS, UnreadableFile
from lab.data.datasets.row_diff import make_diff_entry
from lab.data.datasets.row_display import build_row_display
from lab.data.datasets.rules import DatasetRule, RuleError
from lab.lib.refusals import Refusal
from lab.rollouts.trajectories.text_pieces import escape_invisible_text
from lab.teams.accounts import projects
from lab.teams.accounts.requests import LabRequest
from lab.teams.audit.recording import record_audit_entry

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
        with storage_room.reserve_storage(request.team, sent.size or 0):
            upload = uploads.save_upload(request.team, str(sent.name), sent.chunks())
    except Refusal as refusal:
        return show_import_form(request, str(refusal), 422)
    try:
        kind = detect_kind_in_child(uploads.path_of(request.team, upload))
        importing_rows.read_first_rows(uploads.path_of(request.team, upload), kind)
    except UnreadableFile as error:
        uploads.delete_upload(request.team, upload.token)
        return show_import_form(request, f"{upload.name} {error.message}. {error.fix[:1].upper()}{error.fix[1:]}.", error.status)
    uploads.save_upload_metadata(request.team, replace(upload, kind=kind))
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
        return show_import_form(request, f"{upload.name} {error.message}. {error.fix[:1].upper()}{error.fix[1:]}.", error.status)
    ignored = ignored_preference(seen.left_out, rows, mapped) if seen else []
    errors: dict[str, str] = {}
    if request.method == "POST" and params.get("act") == "make":
        errors = validate_import(params, mapped, seen, ignored) | projects.find_project_problem(request.team, params.get("project", ""))
        if not errors and seen is not None:
            try:
                return create_imported_dataset(request, upload, mapped, params)
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


def validate_import(params: QueryDict, mapped: ColumnMapping, seen: importing_rows.ImportPreview | None, ignored: list[str]) -> dict[str, str]:
    errors = {}
    if not params.get("name", "").replace("\0", "").strip():
        errors["name"] = "Enter a name."
    if seen is None:
        return errors | {"file": "Columns are not mapped. Choose them above."}
    if ignored:
        errors["preference"] = preference_error(ignored)
    if not seen.rows:
        errors["file"] = "No valid rows with this mapping. Choose another format or other columns."
    elif seen.wrong and params.get("skip") != "1":
        what = "1 row is invalid" if seen.wrong == 1 else f"{seen.wrong:,} rows are invalid"
        errors["skip"] = f"{what}. Select the checkbox to skip them, or correct the file and upload it again."
    if seen.left_out and (params.get("leave") != "1" or not set(seen.left_out) <= set(params.getlist("left_out"))):
        what = "1 column is" if len(seen.left_out) == 1 else f"{len(seen.left_out)} columns are"
        errors["leave"] = (
            f"{what} unused: {', '.join(escape_invisible_text(name) for name in sorted(seen.left_out))}. "
            "Select the checkbox to continue without them, or choose a format that uses them."
        )
    return errors


def preference_error(names: list[str]) -> str:
    columns = ", ".join(escape_invisible_text(name) for name in names)
    verb = "records" if len(names) == 1 else "record"
    return f"{columns} {verb} which answer is better and would be ignored. Choose “Two answers and which is better”, or remove it from the file."


def create_imported_dataset(request: LabRequest, upload: uploads.Upload, mapped: ColumnMapping, params: QueryDict) -> HttpResponse:
    """Raises RuleError, then nothing is made."""
    form, leaves = form_of(mapped), params.getlist("left_out")
    rule = replace(rule_form.parse_rule_form(params, DatasetRule()), form=form)
    name = params.get("name", "").replace("\0", "").strip()[:100]
    with transaction.atomic():
        project = projects.parse_project(request.team, params.get("project", ""))
        fields = {"team": request.team, "project": project, "name": name, "form": form}
        dataset = Dataset.objects.create(source=Source.IMPORT, created_by=request.user, **fields)
        record_audit_entry("dataset.import", dataset, form=dataset.form, file=upload.name, bytes=upload.size, format=mapped.format, left_out=leaves)
        described = importing_rows.describe_import(upload, mapped, params.get("skip") == "1", leaves)
        version = freeze_next_version(dataset, request.user, rule, f"Imported from {upload.name}", **described)
    messages.success(request, f"{upload.name} is being imported.")
    return redirect("version", version.pk)
