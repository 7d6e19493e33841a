"""Tasks: the list, making one on one page (source, columns, prompt, rewards, split, preview), its page with its versions, and how they differ."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.http import Http404, HttpResponse, QueryDict
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from lab.data.datasets import import_acts, uploads
from lab.data.datasets.models import Form, Version, VersionState
from lab.data.datasets.raw import KINDS, UnreadableFile
from lab.data.tasks import building, fetching, preview, sources, verbs, version_words
from lab.data.tasks.definition_check import check_form_definition
from lab.data.tasks.models import Fetch, Task, TaskVersion
from lab.data.tasks.rows import COLUMN, SHARE
from lab.data.tasks.sources import Columns, Source
from lab.data.tasks.task_form import KEPT, TaskForm, build_first_inputs, build_version_inputs
from lab.data.tasks.usage import find_version_runs
from lab.lib.numbers import parse_whole_number
from lab.lib.refusals import InputRefusal, Refusal
from lab.teams.accounts import projects
from lab.teams.accounts.models import Team
from lab.teams.accounts.requests import LabRequest
from lab.teams.accounts.roles import has_team_permission
from lab.training.runs.reward_choices import group_choices
from lab.training.workers.models import ANALYSIS, Worker

ROOM = {"room": "tasks"}
LISTED = 200
OFFERED = 100  # dataset versions


@require_safe
def list_tasks(request: LabRequest) -> HttpResponse:
    chosen = projects.clean_project_filter(request.team, request.GET.get("project", ""))
    rows = Task.objects.of(request.team).filter(projects.build_project_condition(chosen)).select_related("created_by").prefetch_related("versions")
    listed = list(rows.order_by("-changed_at", "-pk")[: LISTED + 1])
    shown = [(task, task.newest, len(task.versions.all())) for task in listed[:LISTED]]
    may = has_team_permission(request, "tasks.write")
    context = {"rows": shown, "more": len(listed) > LISTED, "may_write": may, "project": chosen}
    context |= {"projects": projects.list_project_choices(request.team, chosen), "binned": verbs.list_binned(request.team) if may else []}
    return render(request, "tasks/list.html", ROOM | context)


@require_http_methods(["GET", "HEAD", "POST"])
def create_task(request: LabRequest) -> HttpResponse:
    """Choosing where the rows come from; with a source (``?upload=``, ``?dataset=``, ``?fetch=``) the form. POST with a file keeps it."""
    if request.method == "POST" and "file" in request.FILES:
        return receive_file(request)
    return show_task_page(request, None)


@require_http_methods(["GET", "HEAD", "POST"])
def edit_task(request: LabRequest, task_id: int) -> HttpResponse:
    """The form of the next version; it begins with the last one's settings and rows."""
    return show_task_page(request, get_team_task(request, task_id))


def get_team_task(request: LabRequest, task_id: int) -> Task:
    task: Task = get_object_or_404(Task.objects.of(request.team).select_related("team", "created_by").prefetch_related("versions"), pk=task_id)
    return task


def receive_file(request: LabRequest) -> HttpResponse:
    """Keeps an upload and goes on to the form. ``task``: whose next version it is for."""
    sent = request.FILES.get("file")
    assert sent is not None
    key = parse_whole_number(request.POST.get("task", ""))
    task = get_team_task(request, key) if key else None
    try:
        upload = import_acts.keep_file(request.team, str(sent.name), sent.chunks(), sent.size or 0)
    except Refusal as refusal:
        return show_source_choice(request, task, {"file": str(refusal)}, refusal.status)
    page = reverse("task-edit", args=[task.pk]) if task else reverse("task-new")
    return redirect(f"{page}?upload={upload.token}")


def show_task_page(request: LabRequest, task: Task | None) -> HttpResponse:
    params = request.POST if request.method == "POST" else request.GET
    if request.method == "POST" and params.get("act") == "fetch":
        return start_fetch(request, task)
    fetch = sources.find_fetch(request.team, params["fetch"]) if params.get("fetch") else None
    if fetch is not None and not fetch.token:
        return show_fetch(request, fetch, task)
    if params.get("source") == "choose":
        return show_source_choice(request, task)
    try:
        source = sources.find_source(request.team, params, task)
        columns = sources.read_columns(source) if source else None
    except Refusal as refusal:
        named = any(params.get(name) for name in sources.INPUTS)
        return show_source_choice(request, task, {"source": str(refusal)}, refusal.status if named else 200)
    except UnreadableFile as error:
        return show_source_choice(request, task, {"source": f"The file {error.message}: {error.fix}."}, error.status)
    if source is None or columns is None:
        return show_source_choice(request, task)
    form = TaskForm(request.team, read_inputs(request, task, source, columns), columns)
    status = 200
    if request.method == "POST":
        act = params.get("act", "make")
        if act == "make":
            made = make_version(request, form, source, task)
            if made is not None:
                return redirect("task", made.task_id)
            status = 422
        else:
            form.edit(act)
    return render_task_form(request, form, source, task, status)


def read_inputs(request: LabRequest, task: Task | None, source: Source, columns: Columns) -> QueryDict:
    if request.method == "POST":
        return request.POST
    newest = task.newest if task else None
    if newest is not None and task is not None:
        return build_version_inputs(newest, task, request.team)
    return build_first_inputs(columns, source.name)


def make_version(request: LabRequest, form: TaskForm, source: Source, task: Task | None) -> TaskVersion | None:
    """The version; None where something is wrong, which the form then says."""
    wish = form.read_wish()
    if wish is None:
        return None
    try:
        if not check_form_definition(form, wish.definition):
            return None
        version = building.create_version(request.team, request.user, wish, source, task)
    except InputRefusal as refusal:
        form.errors |= {problem.field: f"{problem.message} {problem.fix}" for problem in refusal.problems}
        return None
    except Refusal as refusal:
        form.errors[refusal.field or "form"] = str(refusal)
        return None
    messages.success(request, f"{version} is ready: {version.counts['train']:,} prompts to train on, {version.counts['heldout']:,} held out.")
    return version


def render_task_form(request: LabRequest, form: TaskForm, source: Source, task: Task | None, status: int) -> HttpResponse:
    context = {
        **ROOM,
        "form": form,
        "task": task,
        "source": source,
        "columns": form.columns.examples,
        "distinct": form.columns.distinct.get(form.plan.split_column, []),
        "choices": group_choices(form.choices),
        "splits": {"share": SHARE, "column": COLUMN},
        "kept": KEPT,
        "projects": projects.list_project_choices(request.team, form.project),
        "policies": preview.list_policy_choices(request.team),
        "ask": preview.PreviewAsk.read(form.data),
        "most_pasted": preview.MOST_PASTED,
        "wrong": len(form.errors) + sum(len(reward.errors) for reward in form.rewards),
    }
    return render(request, "tasks/form.html", context, status=status)


def show_source_choice(request: LabRequest, task: Task | None, errors: dict[str, str] | None = None, status: int = 200) -> HttpResponse:
    context = {
        **ROOM,
        "task": task,
        "errors": errors or {},
        "versions": list_dataset_versions(request.team),
        "kinds": list(KINDS.values()),
        "limits": building.describe_limits(),
        "most": uploads.MOST_BYTES,
        "inputs": request.POST,
        "served": Worker.objects.serving(ANALYSIS).exists(),
    }
    return render(request, "tasks/source.html", context, status=status)


def list_dataset_versions(team: Team) -> list[Version]:
    """Frozen versions, newest first; those of rows with references before the others."""
    ready = Version.objects.of(team).filter(state=VersionState.READY).select_related("dataset").order_by("-pk")[:OFFERED]
    return sorted(ready, key=lambda version: version.dataset.form != Form.PROMPT)


def start_fetch(request: LabRequest, task: Task | None) -> HttpResponse:
    try:
        fetch = fetching.request_fetch(request.team, request.user, request.POST)
    except InputRefusal as refusal:
        return show_source_choice(request, task, {problem.field: f"{problem.message} {problem.fix}".strip() for problem in refusal.problems}, 422)
    except Refusal as refusal:
        return show_source_choice(request, task, {refusal.field or "source": str(refusal)}, refusal.status)
    page = reverse("task-edit", args=[task.pk]) if task else reverse("task-new")
    return redirect(f"{page}?fetch={fetch.pk}")


def show_fetch(request: LabRequest, fetch: Fetch, task: Task | None) -> HttpResponse:
    """The progress of a fetch (``?part=state``: that alone); once it is over the page is loaded again."""
    context = {**ROOM, "fetch": fetch, "task": task, "served": Worker.objects.serving(ANALYSIS).exists()}
    part = request.GET.get("part") == "state"
    return render(request, "tasks/fetch.html#state" if part else "tasks/fetch.html", context)


@require_safe
def show_fetch_state(request: LabRequest, fetch_id: Any) -> HttpResponse:
    fetch = get_object_or_404(Fetch.objects.of(request.team), pk=fetch_id)
    response = render(request, "tasks/fetch.html#state", {**ROOM, "fetch": fetch, "served": Worker.objects.serving(ANALYSIS).exists()})
    if not fetch.is_open:
        response["HX-Refresh"] = "true"
    return response


@require_POST
def show_preview(request: LabRequest) -> HttpResponse:
    """A part of the form's page. Nothing is stored."""
    key = parse_whole_number(request.POST.get("task", ""))
    task = get_team_task(request, key) if key else None
    context: dict[str, Any] = {}
    try:
        source = sources.find_source(request.team, request.POST, task)
        if source is None:
            raise Refusal("There are no rows to preview.", "Choose where they come from.", "source", status=404)
        form = TaskForm(request.team, request.POST, sources.read_columns(source))
        form.name = form.name or "Task"
        wish = form.read_wish()
        ask = preview.PreviewAsk.read(request.POST)
        if wish is None:
            problems = [*form.errors.values(), *(text for reward in form.rewards for text in reward.errors.values())]
            context = {"problems": problems}
        else:
            found = preview.preview_task(request.team, wish, source, ask)
            lacking = building.find_row_problems({**found["counts"], "train": 1}, wish.plan, source.file_kind)
            context = {
                "preview": found,
                "ask": ask,
                "warnings": [f"{one.message} {one.fix}" for one in lacking],
                **preview.summarize_preview(found, ask),
            }
    except Refusal as refusal:
        context = {"problems": [str(refusal)]}
    except UnreadableFile as error:
        context = {"problems": [f"The file {error.message}: {error.fix}."]}
    return render(request, "tasks/preview.html", context)


@require_safe
def show_task(request: LabRequest, task_id: int) -> HttpResponse:
    task = get_team_task(request, task_id)
    versions = list(task.versions.all())
    number = parse_whole_number(request.GET.get("v", ""))
    version = next((one for one in versions if one.number == number), None) if number else versions[0]
    if version is None:
        raise Http404
    before = next((one for one in versions if one.number < version.number), None)
    context = {
        **ROOM,
        "task": task,
        "version": version,
        "versions": versions,
        "newest": versions[0],
        "before": before,
        "changes": version_words.describe_changes(before, version) if before else [],
        "rewards": version_words.list_reward_columns(request.team, version),
        "columns": version_words.describe_columns(version),
        "runs": find_version_runs([version]).get(version.sha256, []),
        "may_write": has_team_permission(request, "tasks.write"),
        "may_launch": has_team_permission(request, "runs.launch"),
    }
    return render(request, "tasks/task.html", context)


@require_safe
def show_task_diff(request: LabRequest, task_id: int) -> HttpResponse:
    """What changed between two versions (``?from=2&to=3``), in words."""
    task = get_team_task(request, task_id)
    versions = {version.number: version for version in task.versions.all()}
    numbers = sorted(versions)
    last = parse_whole_number(request.GET.get("to", "")) or numbers[-1]
    first = parse_whole_number(request.GET.get("from", "")) or next((number for number in reversed(numbers) if number < last), numbers[0])
    if first not in versions or last not in versions:
        raise Http404
    old, new = versions[first], versions[last]
    context = {**ROOM, "task": task, "old": old, "new": new, "versions": list(versions.values()), "changes": version_words.describe_changes(old, new)}
    return render(request, "tasks/diff.html", context)


@require_POST
def delete_task(request: LabRequest, task_id: int) -> HttpResponse:
    task = get_team_task(request, task_id)
    try:
        verbs.delete_task(task, request.user)
    except Refusal as refusal:
        messages.error(request, str(refusal))
        return redirect("task", task.pk)
    messages.success(request, f"{task} is deleted. It can be restored for {verbs.get_bin_days()} days.")
    return redirect("tasks")


@require_POST
def restore_task(request: LabRequest, task_id: int) -> HttpResponse:
    task = get_object_or_404(Task.objects.filter(team=request.team), pk=task_id)
    verbs.restore_task(task)
    return redirect("task", task.pk)
