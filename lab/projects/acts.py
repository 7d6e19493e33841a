"""What is done with projects: made, renamed, put away and taken back, and runs, queues and datasets moved between them. All of it is audited."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.contrib import messages
from django.db import IntegrityError, transaction
from django.http import Http404, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_POST

from lab.accounts import projects
from lab.accounts.models import Project, Team
from lab.audit.recording import record
from lab.datasets.models import Dataset
from lab.labels.models import Queue
from lab.projects.pages import listed, project_of, shown
from lab.runs.models import Run
from lab.runs.views.request import LabRequest

NAME_LENGTH, ABOUT_LENGTH = 80, 300
MOST_MOVED = 500
KINDS: dict[str, tuple[Any, str, str]] = {  # kind → model, what its id is, name of its page
    "run": (Run, "number", "run"),
    "queue": (Queue, "pk", "queue"),
    "dataset": (Dataset, "pk", "dataset"),
}
LISTS = {"run": "runs", "queue": "queues", "dataset": "datasets"}


def sent(data: Mapping[str, str]) -> dict[str, str]:
    return {name: " ".join(data.get(name, "").replace("\0", "").split()) for name in ("name", "about")}


def problems(team: Team, values: dict[str, str], own: Project | None = None) -> dict[str, str]:
    errors = {}
    if not values["name"]:
        errors["name"] = "A name is missing. Say what the work is about."
    elif len(values["name"]) > NAME_LENGTH:
        errors["name"] = f"The name has {len(values['name'])} characters. Use at most {NAME_LENGTH}."
    elif other := Project.objects.of(team).filter(name__iexact=values["name"]).exclude(pk=own.pk if own else 0).first():
        where = "an archived project" if other.archived_at else "a project"
        errors["name"] = f"There is {where} of this name already. Choose another name{', or restore that one' if other.archived_at else ''}."
    if len(values["about"]) > ABOUT_LENGTH:
        errors["about"] = f"This has {len(values['about'])} characters. Use at most {ABOUT_LENGTH}."
    return errors


TAKEN = {"name": "There is a project of this name already. Choose another name."}


@require_POST
def new(request: LabRequest) -> HttpResponse:
    values = sent(request.POST)
    if errors := problems(request.team, values):
        return listed(request, values, errors)
    try:
        with transaction.atomic():
            made = Project.objects.create(team=request.team, created_by=request.user, **values)
            record("project.create", made)
    except IntegrityError:  # somebody was a moment faster
        return listed(request, values, TAKEN)
    return redirect("project", made.pk)


@require_POST
def change(request: LabRequest, project_id: int) -> HttpResponse:
    """Another name, or other words about it."""
    found = project_of(request, project_id)
    values = sent(request.POST)
    if errors := problems(request.team, values, found):
        return shown(request, found, values, errors)
    changed = {name: [getattr(found, name), value] for name, value in values.items() if getattr(found, name) != value}
    try:
        with transaction.atomic():
            Project.objects.filter(pk=found.pk).update(**values)
            if changed:
                record("project.change", found, label=values["name"], changed=changed)
    except IntegrityError:
        return shown(request, found, values, TAKEN)
    messages.success(request, "Saved." if changed else "Nothing was changed.")
    return redirect("project", found.pk)


@require_POST
def archive(request: LabRequest, project_id: int) -> HttpResponse:
    return put(request, project_of(request, project_id), away=True)


@require_POST
def restore(request: LabRequest, project_id: int) -> HttpResponse:
    return put(request, project_of(request, project_id), away=False)


def put(request: LabRequest, found: Project, *, away: bool) -> HttpResponse:
    """Doing it twice is doing it once."""
    with transaction.atomic():
        changed = Project.objects.filter(pk=found.pk, archived_at__isnull=away).update(archived_at=timezone.now() if away else None)
        if changed:
            record("project.change", found, changed={"archived": [not away, away]})
    said = f"“{found.name}” is archived. Its runs, queues and datasets stay as they are." if away else f"“{found.name}” is back."
    messages.success(request, said)
    return redirect("project", found.pk)


@require_POST
def move(request: LabRequest) -> HttpResponse:
    """``kind`` run, queue or dataset; ``id`` their numbers (of runs) or ids; ``to`` a project, or empty or ``none`` to take them out of theirs."""
    kind = request.POST.get("kind", "")
    if kind not in KINDS:
        raise Http404("nothing of that kind is in projects")
    model, by, page = KINDS[kind]
    keys = {key for text in request.POST.getlist("id")[:MOST_MOVED] if (key := projects.key_of(text))}
    things = list(model.objects.filter(team=request.team, **{f"{by}__in": keys}).only("pk", by))
    if not things:
        raise Http404("your team has none of these")
    back = redirect(page, things[0].pk) if len(things) == 1 and "back" not in request.POST else redirect(reverse(LISTS[kind]) + query(request))
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
    moved(request, kind, model, things, target)
    return back


def query(request: LabRequest) -> str:
    """The filters of the list that the person came from."""
    text = request.POST.get("back", "")[:2000]
    return text if text.startswith("?") and text.isprintable() else ""


def moved(request: LabRequest, kind: str, model: Any, things: list[Any], target: Project | None) -> None:
    name = target.name if target else "no project"
    with transaction.atomic():
        stay = {"project": target} if target else {"project__isnull": True}
        count = model.objects.filter(pk__in=[thing.pk for thing in things]).exclude(**stay).update(project=target)
        if count:
            shown_ids = [str(getattr(thing, "number", thing.pk)) for thing in things[:50]]
            record("project.move", target, team=request.team, label=name, kind=kind, ids=shown_ids, count=count)
    noun = f"{kind}{'' if count == 1 else 's'}"
    messages.success(request, f"{count} {noun} moved to {f'“{name}”' if target else name}." if count else f"Nothing was moved: already in {name}.")
