"""The buttons of the pages of projects (lab.data.projects.verbs)."""

from __future__ import annotations

from django.contrib import messages
from django.http import Http404, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.views.decorators.http import require_POST

from lab.data.projects import verbs
from lab.data.projects.pages import project_of, render_project_list, render_project_page
from lab.lib.refusals import InputRefusal, Refusal
from lab.teams.accounts import projects
from lab.teams.accounts.models import Project
from lab.teams.accounts.requests import LabRequest

LISTS = {"run": "runs", "queue": "queues", "dataset": "datasets"}


@require_POST
def create_project(request: LabRequest) -> HttpResponse:
    values = verbs.clean_project_values(request.POST)
    try:
        project = verbs.add_project(request.team, request.user, values)
    except InputRefusal as refusal:
        return render_project_list(request, values, refusal.errors)
    return redirect("project", project.pk)


@require_POST
def edit_project(request: LabRequest, project_id: int) -> HttpResponse:
    """Another name, or other words about it."""
    project = project_of(request, project_id)
    values = verbs.clean_project_values(request.POST)
    try:
        changed = verbs.update_project(project, values)
    except InputRefusal as refusal:
        return render_project_page(request, project, values, refusal.errors)
    messages.success(request, "Saved." if changed else "Nothing was changed.")
    return redirect("project", project.pk)


@require_POST
def archive_project(request: LabRequest, project_id: int) -> HttpResponse:
    return switch_project_archive(request, project_of(request, project_id), away=True)


@require_POST
def restore_project(request: LabRequest, project_id: int) -> HttpResponse:
    return switch_project_archive(request, project_of(request, project_id), away=False)


def switch_project_archive(request: LabRequest, project: Project, *, away: bool) -> HttpResponse:
    verbs.set_project_archived(project, away=away)
    message = f"“{project.name}” was archived. Its runs, queues and datasets are unchanged." if away else f"“{project.name}” was restored."
    messages.success(request, message)
    return redirect("project", project.pk)


@require_POST
def move_to_project(request: LabRequest) -> HttpResponse:
    """``kind`` run, queue or dataset; ``id`` their numbers (of runs) or ids; ``to`` a project, or empty or ``none`` to take them out of theirs."""
    kind = request.POST.get("kind", "")
    if kind not in verbs.KINDS:
        raise Http404("nothing of that kind is in projects")
    keys = {key for text in request.POST.getlist("id")[: verbs.MOST_MOVED] if (key := projects.key_of(text))}
    things = verbs.find_movable_items(request.team, kind, keys)
    if not things:
        raise Http404("your team has none of these")
    back = (
        redirect(kind, things[0].pk) if len(things) == 1 and "back" not in request.POST else redirect(reverse(LISTS[kind]) + read_back_query(request))
    )
    to = request.POST.get("to")
    if to is None:
        messages.error(request, "Nothing was moved: choose a project.")
        return back
    try:
        target = projects.parse_project(request.team, "" if to == projects.NONE else to)
    except Refusal:
        raise Http404("no such project") from None
    if target is not None and target.archived_at:
        messages.error(request, f"“{target.name}” is archived: restore it first, or choose another project.")
        return back
    count, name = verbs.assign_project(request.team, kind, things, target), target.name if target else "no project"
    noun = f"{kind}{'' if count == 1 else 's'}"
    messages.success(request, f"{count} {noun} moved to {f'“{name}”' if target else name}." if count else f"Nothing was moved: already in {name}.")
    return back


def read_back_query(request: LabRequest) -> str:
    """The filters of the list that the person came from."""
    text = request.POST.get("back", "")[:2000]
    return text if text.startswith("?") and text.isprintable() else ""
