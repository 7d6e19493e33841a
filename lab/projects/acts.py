"""The buttons of the pages of projects (lab.projects.verbs)."""

from __future__ import annotations

from django.contrib import messages
from django.http import Http404, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.views.decorators.http import require_POST

from lab.accounts import projects
from lab.accounts.models import Project
from lab.projects import verbs
from lab.projects.pages import listed, project_of, shown
from lab.runs.views.request import LabRequest

LISTS = {"run": "runs", "queue": "queues", "dataset": "datasets"}


@require_POST
def new(request: LabRequest) -> HttpResponse:
    values = verbs.cleaned(request.POST)
    try:
        made = verbs.make(request.team, request.user, values)
    except verbs.Refused as error:
        return listed(request, values, error.errors)
    return redirect("project", made.pk)


@require_POST
def change(request: LabRequest, project_id: int) -> HttpResponse:
    """Another name, or other words about it."""
    found = project_of(request, project_id)
    values = verbs.cleaned(request.POST)
    try:
        changed = verbs.change(found, values)
    except verbs.Refused as error:
        return shown(request, found, values, error.errors)
    messages.success(request, "Saved." if changed else "Nothing was changed.")
    return redirect("project", found.pk)


@require_POST
def archive(request: LabRequest, project_id: int) -> HttpResponse:
    return put(request, project_of(request, project_id), away=True)


@require_POST
def restore(request: LabRequest, project_id: int) -> HttpResponse:
    return put(request, project_of(request, project_id), away=False)


def put(request: LabRequest, found: Project, *, away: bool) -> HttpResponse:
    verbs.put(found, away=away)
    said = f"“{found.name}” is archived. Its runs, queues and datasets stay as they are." if away else f"“{found.name}” is back."
    messages.success(request, said)
    return redirect("project", found.pk)


@require_POST
def move(request: LabRequest) -> HttpResponse:
    """``kind`` run, queue or dataset; ``id`` their numbers (of runs) or ids; ``to`` a project, or empty or ``none`` to take them out of theirs."""
    kind = request.POST.get("kind", "")
    if kind not in verbs.KINDS:
        raise Http404("nothing of that kind is in projects")
    keys = {key for text in request.POST.getlist("id")[: verbs.MOST_MOVED] if (key := projects.key_of(text))}
    things = verbs.things(request.team, kind, keys)
    if not things:
        raise Http404("your team has none of these")
    back = redirect(kind, things[0].pk) if len(things) == 1 and "back" not in request.POST else redirect(reverse(LISTS[kind]) + query(request))
    to = request.POST.get("to")
    if to is None:
        messages.error(request, "Nothing was moved: choose a project.")
        return back
    try:
        target = projects.read(request.team, "" if to == projects.NONE else to)
    except projects.UnknownProject:
        raise Http404("no such project") from None
    if target is not None and target.archived_at:
        messages.error(request, f"“{target.name}” is archived: restore it first, or choose another project.")
        return back
    count, name = verbs.move(request.team, kind, things, target), target.name if target else "no project"
    noun = f"{kind}{'' if count == 1 else 's'}"
    messages.success(request, f"{count} {noun} moved to {f'“{name}”' if target else name}." if count else f"Nothing was moved: already in {name}.")
    return back


def query(request: LabRequest) -> str:
    """The filters of the list that the person came from."""
    text = request.POST.get("back", "")[:2000]
    return text if text.startswith("?") and text.isprintable() else ""
