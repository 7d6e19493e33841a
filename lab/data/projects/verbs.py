"""What can be done with projects, whoever asks: made, renamed, put away and taken back, and things moved between them. All of it is audited."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from django.db import IntegrityError, transaction
from django.utils import timezone

from lab.data.datasets.models import Dataset
from lab.labelling.labels.models import Queue
from lab.lib.refusals import InputRefusal, Problem
from lab.teams.accounts.models import Project, Team, User
from lab.teams.audit.recording import record_audit_entry
from lab.training.runs.models import Run

NAME_LENGTH, ABOUT_LENGTH = 80, 300
MOST_MOVED = 500
KINDS: dict[str, tuple[Any, str]] = {"run": (Run, "number"), "queue": (Queue, "pk"), "dataset": (Dataset, "pk")}  # kind → model, what its id is
TAKEN = [Problem("name", "A project with this name already exists. Choose another name.")]


def clean_project_values(data: Mapping[str, str]) -> dict[str, str]:
    return {name: " ".join(data.get(name, "").replace("\0", "").split()) for name in ("name", "about")}


def validate_project_values(team: Team, values: dict[str, str], own: Project | None = None) -> list[Problem]:
    errors: dict[str, str] = {}
    if not values["name"]:
        errors["name"] = "Enter a name."
    elif len(values["name"]) > NAME_LENGTH:
        errors["name"] = f"The name has {len(values['name'])} characters. Use at most {NAME_LENGTH}."
    elif other := Project.objects.of(team).filter(name__iexact=values["name"]).exclude(pk=own.pk if own else 0).first():
        where = "an archived project" if other.archived_at else "a project"
        errors["name"] = f"There is {where} with this name already. Choose another name{', or restore that one' if other.archived_at else ''}."
    if len(values["about"]) > ABOUT_LENGTH:
        errors["about"] = f"This has {len(values['about'])} characters. Use at most {ABOUT_LENGTH}."
    return [Problem(field, words) for field, words in errors.items()]


def add_project(team: Team, user: User | None, values: dict[str, str]) -> Project:
    """Raises InputRefusal."""
    if problems := validate_project_values(team, values):
        raise InputRefusal(problems)
    try:
        with transaction.atomic():
            project = Project.objects.create(team=team, created_by=user, **values)
            record_audit_entry("project.create", project)
    except IntegrityError:  # somebody was a moment faster
        raise InputRefusal(TAKEN) from None
    return project


def update_project(project: Project, values: dict[str, str]) -> bool:
    """Another name, or other words about it; whether anything was changed. Raises InputRefusal."""
    if problems := validate_project_values(project.team, values, project):
        raise InputRefusal(problems)
    changed = {name: [getattr(project, name), value] for name, value in values.items() if getattr(project, name) != value}
    try:
        with transaction.atomic():
            Project.objects.same_row(project).update(**values)
            if changed:
                record_audit_entry("project.change", project, label=values["name"], changed=changed)
    except IntegrityError:
        raise InputRefusal(TAKEN) from None
    return bool(changed)


def set_project_archived(project: Project, *, away: bool) -> None:
    """Into the archive, or back. Doing it twice is doing it once."""
    with transaction.atomic():
        changed = Project.objects.same_row(project).filter(archived_at__isnull=away).update(archived_at=timezone.now() if away else None)
        if changed:
            record_audit_entry("project.change", project, changed={"archived": [not away, away]})


def find_movable_items(team: Team, kind: str, keys: Collection[int]) -> list[Any]:
    """The team's runs (by number), queues or datasets among ``keys``."""
    model, by = KINDS[kind]
    return list(model.objects.filter(team=team, **{f"{by}__in": keys}).only("pk", by))


def assign_project(team: Team, kind: str, things: Collection[Any], target: Project | None) -> int:
    """How many of ``things`` (see ``find_movable_items``) were elsewhere. Without ``target`` they are taken out of their projects."""
    model, _ = KINDS[kind]
    with transaction.atomic():
        stay = {"project": target} if target else {"project__isnull": True}
        count: int = model.objects.filter(team=team, pk__in=[thing.pk for thing in things]).exclude(**stay).update(project=target)
        if count:
            ids = [str(getattr(thing, "number", thing.pk)) for thing in things][:50]
            record_audit_entry("project.move", target, team=team, label=target.name if target else "no project", kind=kind, ids=ids, count=count)
    return count
