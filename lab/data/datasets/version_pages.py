"""The page of a frozen version: what it is, its rows with where they came from, what has changed since, and how it differs from others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from django.core.paginator import Paginator
from django.db import transaction
from django.db.models import QuerySet, TextField
from django.db.models.functions import Cast
from django.http import Http404, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_POST, require_safe

from lab.data.datasets import rule_form
from lab.data.datasets.downstream import flags_of, runs_of
from lab.data.datasets.exports import FORMATS, SHAPES_OF
from lab.data.datasets.freezing import PREVIEWED, enqueue_version_build, preview_next_version
from lab.data.datasets.models import Form, Row, Version, VersionState
from lab.data.datasets.pages import by_field, stored_rule
from lab.data.datasets.row_diff import KINDS, DiffEntry, RowDifference, count_differences, diff_entries, entries_of, make_diff_entry
from lab.data.datasets.row_display import RowDisplay, build_row_display, names_of
from lab.data.datasets.rows import SPANS
from lab.data.datasets.rule_words import describe_rule, import_words
from lab.data.datasets.rules import CLEANERS, DatasetRule, RuleError
from lab.data.datasets.tool_words import describe_tool_origin, list_made_versions
from lab.data.datasets.votes import items_of
from lab.labelling.labels.models import Queue
from lab.lib.numbers import parse_whole_number
from lab.teams.accounts.requests import LabRequest
from lab.teams.accounts.roles import has_team_permission
from lab.training.workers.models import ANALYSIS, Worker

PAGE = 20
SPLITS = {"": "Train and test", "train": "Train", "test": "Test"}
ONLY = {
    "": "All rows",
    "suspect": "Suspect labels",
    "corrected": "Corrected answers",
    "adjudicated": "Adjudicated",
    "split": "Not unanimous",
    "spans": "Marked spans",
}
OTHERS = 50  # versions offered to compare with


def get_team_version(request: LabRequest, version_id: int) -> Version:
    return get_object_or_404(Version.objects.of(request.team).select_related("dataset__team", "created_by"), pk=version_id)


@dataclass(frozen=True)
class RowQuery:
    """Which rows the address asks for; anything not on offer counts as absent."""

    split: str = ""
    only: str = ""
    labeller: int | None = None
    text: str = ""

    @classmethod
    def read(cls, params: Mapping[str, str]) -> RowQuery:
        split, only, labeller = params.get("split", ""), params.get("only", ""), params.get("labeller", "")
        return cls(
            split if split in SPLITS else "",
            only if only in ONLY else "",
            parse_whole_number(labeller),
            params.get("q", "").replace("\0", "").strip()[:200],
        )

    def query(self, **more: Any) -> str:
        own = {"split": self.split, "only": self.only, "labeller": self.labeller, "q": self.text, **more}
        return "?" + urlencode({name: value for name, value in own.items() if value not in ("", None)})

    @property
    def any(self) -> bool:
        return self != RowQuery()

    def of(self, rows: QuerySet[Row]) -> QuerySet[Row]:
        if self.split:
            rows = rows.filter(split=self.split)
        if self.labeller is not None:
            rows = rows.filter(labellers__contains=[self.labeller])
        if self.text:
            rows = rows.annotate(as_text=Cast("row", TextField())).filter(as_text__icontains=self.text.replace("\n", "\\n"))
        if self.only == "suspect":
            rows = rows.exclude(suspect={}).exclude(suspect__action="")
        elif self.only in ("corrected", "adjudicated"):
            rows = rows.filter(**{f"provenance__{self.only}": True})
        elif self.only == "split":
            rows = rows.filter(provenance__agreement__lt=1)
        elif self.only == "spans":
            rows = rows.filter(row__has_any_keys=SPANS)
        return rows


@require_safe
def show_version(request: LabRequest, version_id: int) -> HttpResponse:
    version = get_team_version(request, version_id)
    if request.GET.get("part") == "state":
        return state_part(request, version)
    query = RowQuery.read(request.GET)
    pages = Paginator(query.of(version.rows.order_by("-split", "place")), PAGE)
    page = pages.get_page(request.GET.get("page", "1"))
    people = names_of(request.team, {user for row in page for user in row.labellers} | labellers_of(version))
    rule = rule_of(version)
    about = build_version_context(request, version)
    context = {
        **about,
        "query": query,
        "page": page,
        "rows": [build_row_display(row, people) for row in page],
        "before_page": query.query(page=page.previous_page_number()) if page.has_previous() else "",
        "after_page": query.query(page=page.next_page_number()) if page.has_next() else "",
        "splits": SPLITS.items(),
        "cleaners": CLEANERS.items(),
        "only": ONLY.items(),
        "labellers": sorted(((pk, people[pk]) for pk in labellers_of(version) if pk in people), key=lambda labeller: labeller[1]),
        "rule_words": about["tool"].words if about["tool"] else describe_making(version, rule),
        "made_versions": list_made_versions(version),
        "runs": runs_of([version]).get(version.pk, []),
        "others": list_comparable_versions(version),
        "formats": FORMATS.items(),
        "shapes": SHAPES_OF[Form(version.dataset.form)].items(),
    }
    return render(request, "datasets/version.html", context)


def build_version_context(request: LabRequest, version: Version) -> dict[str, Any]:
    newest = version.dataset.versions.filter(number__gt=version.number).count()
    return {
        "room": "datasets",
        "version": version,
        "dataset": version.dataset,
        "flags": flags_of([version]).get(version.pk, []),
        "later": newest,
        "may_lead": has_team_permission(request, "datasets.write"),
        "served": not version.is_open or Worker.objects.serving(ANALYSIS).exists(),
        "labelled": version.dataset.is_labelled,
        "tool": describe_tool_origin(version),
    }


def state_part(request: LabRequest, version: Version) -> HttpResponse:
    """The progress of a build; once it is over the page is loaded again."""
    response = render(request, "datasets/version.html#state", build_version_context(request, version))
    if not version.is_open:
        response["HX-Refresh"] = "true"
    return response


def rule_of(version: Version) -> DatasetRule | None:
    try:
        return DatasetRule.read(version.rule) if version.rule else None
    except RuleError:
        return None


def describe_making(version: Version, rule: DatasetRule | None) -> list[tuple[str, str]]:
    """How the rows were made of labels or read from a file, in words."""
    return [*import_words(version), *(describe_rule(rule, queue_names(version, rule), version.dataset.source) if rule else [])]


def queue_names(version: Version, rule: DatasetRule) -> list[str]:
    return list(Queue.objects.of(version.dataset.team).filter(pk__in=rule.queues).order_by("pk").values_list("name", flat=True))


def labellers_of(version: Version) -> set[int]:
    """Everybody whose labels are in the version."""
    arrays = version.rows.values_list("labellers", flat=True).distinct()[:1000]
    return {user for labellers in arrays for user in labellers}


def list_comparable_versions(version: Version) -> list[Version]:
    """Versions to compare with: of the same dataset, the nearest before first."""
    same = version.dataset.versions.filter(state=VersionState.READY).exclude(pk=version.pk)
    return sorted(same[:OTHERS], key=lambda other: (other.number > version.number, abs(other.number - version.number)))


@require_safe
def show_changes_since(request: LabRequest, version_id: int) -> HttpResponse:
    """A piece of the page: how many rows the same rule would give differently now. Nothing is changed."""
    version = get_team_version(request, version_id)
    rule = rule_of(version)
    if version.state != VersionState.READY or rule is None or not version.dataset.is_labelled:
        return HttpResponse("")
    if items_of(request.team, rule.queues).count() > PREVIEWED:  # too long to wait for unasked
        return render(request, "datasets/since.html", {"version": version, "unasked": True})
    changes = count_differences(diff_entries(entries_of(version), [make_diff_entry(row) for row in preview_next_version(version.dataset, rule).rows]))
    return render(request, "datasets/since.html", {"version": version, "changes": changes, "differ": sum(changes.values())})


@require_POST
def retry_version_build(request: LabRequest, version_id: int) -> HttpResponse:
    version = get_team_version(request, version_id)
    with transaction.atomic():
        if version.retry():
            enqueue_version_build(version)
    return redirect("version", version.pk)


@require_safe
def show_version_diff(request: LabRequest, version_id: int) -> HttpResponse:
    """From one version to another (``?against=<id>``) or to what a rule would give now (``?against=now``, with the inputs of the rule's form)."""
    version = get_team_version(request, version_id)
    against = request.GET.get("against", "")
    context: dict[str, Any] = {
        **build_version_context(request, version),
        "others": list_comparable_versions(version),
        "against": against,
        "kinds": KINDS,
    }
    if version.state != VersionState.READY:
        return render(request, "datasets/diff.html", {**context, "nothing": "This version is not ready yet."})
    try:
        before, after, context["other"] = load_diff_sides(request, version, against)
    except RuleError as error:
        return render(request, "datasets/diff.html", {**context, "problems": by_field(error.problems)}, status=422)
    context["backwards"] = is_earlier_version(context["other"], version)
    if after is None:
        return render(request, "datasets/diff.html", context)
    changes = diff_entries(before, after)
    kind = request.GET.get("kind", "")
    kind = kind if kind in KINDS else ""
    page = Paginator([change for change in changes if not kind or change.kind == kind], PAGE).get_page(request.GET.get("page", "1"))
    context |= {
        "changes": count_differences(changes),
        "total": len(changes),
        "same": len(after) - sum(change.after is not None for change in changes),
        "kind": kind,
        "page": page,
        "entries": build_diff_rows(request, list(page)),
        "links": {name: build_diff_link(request, kind=name) for name in ("", *KINDS)},
        "before_page": build_diff_link(request, page=page.previous_page_number()) if page.has_previous() else "",
        "after_page": build_diff_link(request, page=page.next_page_number()) if page.has_next() else "",
    }
    return render(request, "datasets/diff.html", context)


def load_diff_sides(request: LabRequest, version: Version, against: str) -> tuple[list[DiffEntry], list[DiffEntry] | None, Version | None]:
    """Rows before and after, and the other version. Of two versions of a dataset the older stands before. Raises RuleError."""
    if against == "now":
        rule = rule_form.parse_rule_form(request.GET, rule_of(version) or stored_rule(version.dataset))
        return entries_of(version), [make_diff_entry(row) for row in preview_next_version(version.dataset, rule).rows], None
    key = parse_whole_number(against)
    if key is None:
        return [], None, None
    other = Version.objects.of(request.team).filter(pk=key, state=VersionState.READY).select_related("dataset").first()
    if other is None:
        raise Http404
    if is_earlier_version(other, version):
        return entries_of(other), entries_of(version), other
    return entries_of(version), entries_of(other), other


def is_earlier_version(version: Version | None, than: Version) -> bool:
    """Whether it is an older version of the same dataset."""
    return bool(version and version.dataset_id == than.dataset_id and version.number < than.number)


def build_diff_link(request: LabRequest, **changes: Any) -> str:
    params = request.GET.copy()
    params.pop("page", None)
    for name, value in changes.items():
        params[name] = str(value)
    return "?" + params.urlencode()


@dataclass(frozen=True)
class RowComparison:
    kind: str
    label: str
    before: RowDisplay | None
    after: RowDisplay | None
    columns: list[tuple[str, Any, Any]]  # weight, margin, split: where they differ


def build_diff_rows(request: LabRequest, changes: list[RowDifference]) -> list[RowComparison]:
    people = names_of(request.team, {user for change in changes for user in change.entry.labellers})
    diff_rows = []
    for change in changes:
        before, after = (build_row_display(side, people) if side else None for side in (change.before, change.after))
        columns = []
        if change.before and change.after:
            values = [
                (name, change.before.row.get(name, usual), change.after.row.get(name, usual)) for name, usual in (("weight", 1.0), ("margin", None))
            ]
            columns = [(name, old, new) for name, old, new in (*values, ("split", change.before.split, change.after.split)) if old != new]
        same_text = change.before and change.after and change.before.digest == change.after.digest
        diff_rows.append(RowComparison(change.kind, KINDS[change.kind], None if same_text else before, after, columns))
    return diff_rows
