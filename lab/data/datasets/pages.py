"""Datasets: the list, a new one, and the page of one with its versions and the rule of the next."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from django.contrib import messages
from django.db import transaction
from django.db.models import Count, Prefetch, Q, QuerySet
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from lab.data.datasets import rule_form
from lab.data.datasets.decisions import MAKERS
from lab.data.datasets.downstream import flags_of
from lab.data.datasets.freezing import PREVIEWED, freeze_next_version, preview_next_version
from lab.data.datasets.models import Dataset, Form, Source, Version, VersionState
from lab.data.datasets.row_building import Composition
from lab.data.datasets.row_diff import count_differences, diff_entries, entries_of, make_diff_entry
from lab.data.datasets.row_display import build_row_display, names_of
from lab.data.datasets.rules import ACTIONS, AGGREGATIONS, CLEANERS, CORRECTIONS, MARGINS, NEUTRALS, VOTES, WEIGHTED_FORMS, DatasetRule, RuleError
from lab.data.datasets.tool_words import describe_tool_origin
from lab.labelling.labels.models import ItemState, Kind, Purpose, Queue
from lab.lib.numbers import parse_ids
from lab.lib.refusals import Problem
from lab.rollouts.annotations.turn_labels import count_turn_labels
from lab.teams.accounts import projects
from lab.teams.accounts.models import Team
from lab.teams.accounts.requests import LabRequest
from lab.teams.accounts.roles import has_team_permission
from lab.teams.audit.recording import record_audit_entry
from lab.training.workers.models import ANALYSIS, Worker

LISTED = 200
SAMPLES = 5
CHOICES = {
    "aggregations": AGGREGATIONS.items(),
    "margins": MARGINS.items(),
    "corrections": CORRECTIONS.items(),
    "neutrals": NEUTRALS.items(),
    "cleaners": CLEANERS.items(),
    "weighted": WEIGHTED_FORMS,
    "actions": ACTIONS.items(),
    "votes": VOTES.items(),
}


@dataclass(frozen=True)
class DatasetSummary:
    dataset: Dataset
    newest: Version | None
    versions: int
    flagged: bool


@require_safe
def list_datasets(request: LabRequest) -> HttpResponse:
    chosen = projects.clean_project_filter(request.team, request.GET.get("project", ""))
    rows = Dataset.objects.of(request.team).filter(projects.build_project_condition(chosen)).select_related("created_by").prefetch_related("queues")
    rows = rows.prefetch_related(Prefetch("versions", Version.objects.order_by("-number"))).order_by("-created_at", "-pk")[: LISTED + 1]
    with_versions = [(dataset, list(dataset.versions.all())) for dataset in rows]
    flags = flags_of([versions[0] for _, versions in with_versions if versions])
    listed = [
        DatasetSummary(dataset, versions[0] if versions else None, len(versions), bool(versions) and versions[0].pk in flags)
        for dataset, versions in with_versions[:LISTED]
    ]
    context = {"room": "datasets", "rows": listed, "more": len(with_versions) > LISTED, "may_lead": has_team_permission(request, "datasets.write")}
    context |= {"project": chosen, "projects": projects.list_project_choices(request.team, chosen)}
    return render(request, "datasets/list.html", {**context, "labelled": labelled_queues(request.team).exists()})


def labelled_queues(team: Team) -> QuerySet[Queue]:
    """Queues whose labels can be rows."""
    return Queue.objects.of(team).exclude(kind=Kind.CLEARER).exclude(purpose=Purpose.AB).order_by("-created_at", "-pk")


def queue_choices(team: Team) -> list[Queue]:
    settled = Count("items", filter=Q(items__labels__gt=0) | Q(items__state=ItemState.SETTLED))
    return list(labelled_queues(team).annotate(total=Count("items"), settled=settled)[:LISTED])


def chosen_queues(request: LabRequest, names: list[str]) -> list[Queue]:
    """Queues of the team; ids that are none are ignored."""
    return list(labelled_queues(request.team).filter(pk__in=parse_ids(names)))


@require_http_methods(["GET", "HEAD", "POST"])
def create_dataset(request: LabRequest) -> HttpResponse:
    """The form (``?queue=``); POST makes the dataset and goes on to its page, where the rule is."""
    sent = request.POST if request.method == "POST" else request.GET
    name, form = sent.get("name", "").replace("\0", "").strip(), sent.get("form", Form.PREFERENCE)
    source = Source.TURNS if sent.get("source") == Source.TURNS else Source.QUEUES
    queues = chosen_queues(request, sent.getlist("queue")) if source == Source.QUEUES else []
    runs, project = rule_form.parse_run_numbers(sent.get("run", "")), sent.get("project", "")
    errors: dict[str, str] = {}
    if request.method == "POST":
        errors = validate_dataset_form(name, form, queues, source) | projects.find_project_problem(request.team, project)
        if not errors:
            with transaction.atomic():
                where = projects.parse_project(request.team, project)
                about = {"rule": {"runs": runs}, "source": source} if source == Source.TURNS else {}
                dataset = Dataset.objects.create(team=request.team, name=name, form=form, created_by=request.user, project=where, **about)
                dataset.queues.set(queues)
                record_audit_entry("dataset.create", dataset, form=dataset.form, source=str(source), queues=[queue.pk for queue in queues])
            return redirect("dataset", dataset.pk)
    if not name and len(queues) == 1:
        name = queues[0].name
    if not name and source == Source.TURNS and runs:
        name = f"Step pairs of run {runs[0]}"
    if "project" not in sent and len({queue.project_id for queue in queues}) == 1:  # what is made of a project's labels is in it
        project = str(queues[0].project_id or "")
    context: dict[str, Any] = {
        "room": "datasets",
        "name": name,
        "form": form,
        "forms": [(form.value, form.label) for form in MAKERS],
        "errors": errors,
    }
    context |= {"queues": queue_choices(request.team), "chosen": {queue.pk for queue in queues}}
    context |= {"source": str(source), "runs": ", ".join(map(str, runs)), "turn_labels": count_turn_labels(request.team)}
    context |= {"project": project, "projects": projects.list_project_choices(request.team, project)}
    return render(request, "datasets/new.html", context, status=422 if errors else 200)


def validate_dataset_form(name: str, form: str, queues: list[Queue], source: str = Source.QUEUES) -> dict[str, str]:
    errors = {}
    if not name:
        errors["name"] = "Enter a name."
    elif len(name) > 100:
        errors["name"] = f"The name has {len(name)} characters. Use at most 100."
    if form not in MAKERS:
        errors["form"] = "Unknown form. Choose one from the list."
    if source == Source.TURNS:
        if form != Form.PREFERENCE:
            errors["form"] = "Labels on turns give preference pairs. Choose that form."
    elif not queues:
        errors["queue"] = "No queue is chosen. Select at least one."
    elif form == Form.STEPWISE and not any(asks_for_steps(queue) for queue in queues):
        errors["queue"] = "None of these queues has step marks. Select one that does, or choose another form."
    return errors


def asks_for_steps(queue: Queue) -> bool:
    return queue.kind == Kind.SINGLE and queue.steps


def dataset_of(request: LabRequest, dataset_id: int) -> Dataset:
    return get_object_or_404(Dataset.objects.of(request.team), pk=dataset_id)


def stored_rule(dataset: Dataset) -> DatasetRule:
    """What the next version's rule starts from. A rule of another version of the lab that cannot be read counts as none."""
    try:
        rule = DatasetRule.read(dataset.rule or {})
    except RuleError:
        rule = DatasetRule()
    return replace(rule, form=dataset.form, queues=tuple(sorted(dataset.queues.values_list("pk", flat=True))))


@require_safe
def show_dataset(request: LabRequest, dataset_id: int) -> HttpResponse:
    """Its versions and the rule of the next one; the address may hold another rule to look at."""
    return render_dataset_page(request, dataset_of(request, dataset_id), request.GET)


def render_dataset_page(request: LabRequest, dataset: Dataset, params: Any, errors: dict[str, str] | None = None) -> HttpResponse:
    before = stored_rule(dataset)
    errors = dict(errors or {})
    try:
        rule = rule_form.parse_rule_form(params, before)
    except RuleError as error:
        rule, errors = before, {**by_field(error.problems), **errors}
    versions = list(dataset.versions.select_related("created_by")[:LISTED])
    newest = next((version for version in versions if version.state == VersionState.READY), None)
    context = {
        "room": "datasets",
        "dataset": dataset,
        "versions": versions,
        "newest": newest,
        "flags": flags_of(versions),
        "open": any(version.is_open for version in versions),
        "values": rule_form.build_rule_inputs(rule, params),
        "errors": errors,
        "notes": params.get("notes", ""),
        "queues": queue_choices(request.team) if dataset.source == Source.QUEUES else [],
        "may_lead": has_team_permission(request, "datasets.write"),
        "served": Worker.objects.serving(ANALYSIS).exists(),
        "refusal": bool(errors),
        "tool": describe_tool_origin(versions[0]) if versions else None,
        **CHOICES,
    }
    return render(request, "datasets/dataset.html", context, status=422 if errors else 200)


def by_field(problems: list[Problem]) -> dict[str, str]:
    return {problem.field: f"{problem.message[:1].upper()}{problem.message[1:]}. {problem.fix[:1].upper()}{problem.fix[1:]}." for problem in problems}


@require_safe
def preview_dataset_rule(request: LabRequest, dataset_id: int) -> HttpResponse:
    """A piece of the page: what a version under the form's rule would hold now."""
    dataset = dataset_of(request, dataset_id)
    try:
        rule = rule_form.parse_rule_form(request.GET, stored_rule(dataset))
    except RuleError as error:
        return render(request, "datasets/preview.html", {"problems": by_field(error.problems)})
    composed = preview_next_version(dataset, rule, PREVIEWED)
    context = {
        "dataset": dataset,
        "counts": composed.counts(),
        "samples": build_row_samples(request.team, composed),
        "query": request.GET.urlencode(),
        "cleaners": CLEANERS.items(),
    }
    newest = dataset.versions.filter(state=VersionState.READY).first()
    cut = dataset.is_labelled and composed.items >= PREVIEWED
    if newest and not cut:
        changes = count_differences(diff_entries(entries_of(newest), [make_diff_entry(row) for row in composed.rows]))
        context |= {"newest": newest, "changes": changes, "differ": sum(changes.values())}
    return render(request, "datasets/preview.html", {**context, "cut": cut, "looked_at": composed.items})


def build_row_samples(team: Team, composed: Composition) -> list[Any]:
    """Some rows, evenly over all of them."""
    gap = max(1, len(composed.rows) // SAMPLES)
    rows = composed.rows[::gap][:SAMPLES]
    names = names_of(team, [user for row in rows for user in row.labellers])
    return [build_row_display(make_diff_entry(row), names) for row in rows]


@require_POST
def freeze_dataset(request: LabRequest, dataset_id: int) -> HttpResponse:
    """Queues the next version under the form's rule, or under the stored one when no rule is sent."""
    dataset = dataset_of(request, dataset_id)
    try:
        rule = rule_form.parse_rule_form(request.POST, stored_rule(dataset))
        with transaction.atomic():
            if rule_form.SENT in request.POST and dataset.source == Source.QUEUES:
                dataset.queues.set(chosen_queues(request, request.POST.getlist("queues")))
            version = freeze_next_version(dataset, request.user, rule, request.POST.get("notes", "").replace("\0", "").strip()[:10_000])
    except RuleError as error:
        return render_dataset_page(request, dataset, request.POST, by_field(error.problems))
    messages.success(request, f"Version {version.number} is being built.")
    return redirect("version", version.pk)
