"""Files people bring: uploaded, looked at under a mapping of columns, and made a dataset with a frozen version 1 once they say so."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from django.contrib import messages
from django.db import transaction
from django.http import HttpResponse, QueryDict
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_http_methods

from lab.accounts import projects
from lab.audit.recording import record
from lab.datasets import importing_rows, room, rule_form, uploads
from lab.datasets.diffing import entry
from lab.datasets.freezing import freeze
from lab.datasets.models import Dataset, Form, Source
from lab.datasets.pages import by_field
from lab.datasets.raw import KINDS, Unreadable, sniff
from lab.datasets.rules import Rule, RuleError
from lab.datasets.shapes import PARTS, SHAPES, Mapped, columns_of, guess
from lab.datasets.shown import shown
from lab.runs.views.request import LabRequest
from lab.trajectories.pieces import named

PAGE = "datasets/import.html"


@require_http_methods(["GET", "HEAD", "POST"])
def upload(request: LabRequest) -> HttpResponse:
    """The form of the file; with ``?upload=`` the form of the mapping. POST with a file keeps it, with a mapping makes the dataset."""
    params = request.POST if request.method == "POST" else request.GET
    if request.method == "POST" and "upload" not in params:
        return receive(request)
    token = params.get("upload", "")
    found = uploads.find(request.team, token)
    if found is None:
        problem = "That upload is gone: uploads are kept for a day and until they are a dataset. Choose the file again." if token else ""
        return first(request, problem, 404 if token else 200)
    return mapping(request, found, params)


def first(request: LabRequest, problem: str = "", status: int = 200) -> HttpResponse:
    context = {"room": "datasets", "problem": problem, "most": uploads.MOST_BYTES, "shapes": SHAPES.items(), "kinds": KINDS.values()}
    return render(request, PAGE, context, status=status)


def receive(request: LabRequest) -> HttpResponse:
    sent = request.FILES.get("file")
    if sent is None:
        return first(request, "No file was sent. Choose one.", 422)
    try:
        with room.kept(request.team, sent.size or 0):
            found = uploads.keep(request.team, str(sent.name), sent.chunks())
    except room.NoRoom as error:
        return first(request, str(error), 422)
    except uploads.TooLarge as error:
        return first(request, f"{uploads.shown(str(sent.name))} {error}. Split it.", 422)
    try:
        kind = sniff(uploads.path_of(request.team, found))
        importing_rows.head(uploads.path_of(request.team, found), kind)
    except Unreadable as error:
        uploads.forget(request.team, found.token)
        return first(request, f"{found.name} {error.message}. {error.fix[:1].upper()}{error.fix[1:]}.", 422)
    uploads.describe(request.team, replace(found, kind=kind))
    return redirect(f"{reverse('dataset-import')}?upload={found.token}")


def read(params: QueryDict, guessed: Mapped, there: list[str]) -> Mapped:
    """The mapping that was sent; what was not sent, or is not on offer, is guessed."""
    if "shape" not in params:
        return guessed
    shape = params["shape"] if params["shape"] in SHAPES else guessed.shape
    form = params.get("form", "")
    form = form if (shape, form) in PARTS else next(own for known, own in PARTS if known == shape)
    sent = {part: params[f"column_{part}"] for part in guessed_parts() if f"column_{part}" in params}
    columns = {part: name for part, name in {**guessed.columns, **sent}.items() if name in there}
    return Mapped(shape, form, columns)


def guessed_parts() -> list[str]:
    return sorted({part for parts in PARTS.values() for part in parts})


def mapping(request: LabRequest, found: uploads.Upload, params: QueryDict) -> HttpResponse:
    path = uploads.path_of(request.team, found)
    try:
        rows = importing_rows.head(path, found.kind)
        there = columns_of(rows)
        mapped = read(params, guess(rows), there)
        seen = None if mapped.missing else importing_rows.look(path, found.kind, mapped, found.name)
    except Unreadable as error:
        return first(request, f"{found.name} {error.message}. {error.fix[:1].upper()}{error.fix[1:]}.", 422)
    errors: dict[str, str] = {}
    if request.method == "POST" and seen is not None and params.get("act") == "make":
        errors = refused(params, seen) | projects.problem(request.team, params.get("project", ""))
        if not errors:
            try:
                return make(request, found, mapped, params)
            except RuleError as error:
                errors = by_field(error.problems)
    context: dict[str, Any] = {
        "room": "datasets",
        "upload": found,
        "kind": KINDS[found.kind],
        "there": there,
        "shown_columns": [named(name) for name in there],
        "mapped": mapped,
        "choices": [(part, mapped.columns.get(part, "")) for part in mapped.parts],
        "shapes": SHAPES.items(),
        "forms": [(value, label) for value, label in Form.choices if (mapped.shape, value) in PARTS],
        "seen": seen,
        "samples": [shown(entry(one), {}) for one in seen.samples] if seen else [],
        "unlisted": seen.wrong - len(seen.broken) if seen else 0,
        "errors": errors,
        "name": params.get("name", found.name.rsplit(".", 1)[0])[:100],
        "values": rule_form.inputs(Rule(), params),
        "project": params.get("project", ""),
        "projects": projects.choices(request.team, params.get("project")),
    }
    return render(request, PAGE, context, status=422 if errors else 200)


def refused(params: QueryDict, seen: importing_rows.Seen) -> dict[str, str]:
    errors = {}
    if not params.get("name", "").replace("\0", "").strip():
        errors["name"] = "A name is missing. Say what the rows are about."
    if not seen.rows:
        errors["file"] = "No row can be used under this mapping. Choose other columns."
    elif seen.wrong and params.get("skip") != "1":
        what = "1 row is broken" if seen.wrong == 1 else f"{seen.wrong:,} rows are broken"
        errors["skip"] = f"{what}. Tick to leave out what is broken, or mend the file and upload it again."
    return errors


def make(request: LabRequest, found: uploads.Upload, mapped: Mapped, params: QueryDict) -> HttpResponse:
    """Raises RuleError, then nothing is made."""
    rule = replace(rule_form.read(params, Rule()), form=mapped.form)
    name = params.get("name", "").replace("\0", "").strip()[:100]
    with transaction.atomic():
        project = projects.read(request.team, params.get("project", ""))
        made = {"team": request.team, "project": project, "name": name, "form": mapped.form}
        dataset = Dataset.objects.create(source=Source.IMPORT, created_by=request.user, **made)
        record("dataset.import", dataset, form=dataset.form, file=found.name, bytes=found.size)
        described = importing_rows.described(found, mapped, params.get("skip") == "1")
        version = freeze(dataset, request.user, rule, f"Imported from {found.name}", **described)
    messages.success(request, f"{found.name} is being imported.")
    return redirect("version", version.pk)
