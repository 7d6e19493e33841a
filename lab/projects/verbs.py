"""What can be done with projects, whoever asks: made, renamed, put away and taken back, and things moved between them. All of it is audited."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from django.db import IntegrityError, transaction
from django.utils import timezone

from lab.accounts.models import Project, Team, User
from lab.audit.recording import record
from lab.datasets.models import Dataset
from lab.labels.models import Queue
from lab.runs.models import Run

NAME_LENGTH, ABOUT_LENGTH = 80, 300
MOST_MOVED = 500
KINDS: dict[str, tuple[Any, str]] = {"run": (Run, "number"), "queue": (Queue, "pk"), "dataset": (Dataset, "pk")}  # kind → model, what its id is
TAKEN = {"name": "There is a project of this name already. Choose another name."}


class Refused(ValueError):
    """``errors``: field → words."""

    def __init__(self, errors: dict[str, str]) -> None:
        super().__init__(" ".join(errors.values()))
        self.errors = errors


def cleaned(data: Mapping[str, str]) -> dict[str, str]:
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


def make(team: Team, user: User | None, values: dict[str, str]) -> Project:
    """Raises Refused."""
    if errors := problems(team, values):
        raise Refused(errors)
    try:
        with transaction.atomic():
            made = Project.objects.create(team=team, created_by=user, **values)
            record("project.create", made)
    except IntegrityError:  # somebody was a moment faster
        raise Refused(TAKEN) from None
    return made


def change(found: Project, values: dict[str, str]) -> bool:
    """Another name, or other words about it; whether anything was changed. Raises Refused."""
    if errors := problems(found.team, values, found):
        raise Refused(errors)
    changed = {name: [getattr(found, name), value] for name, value in values.items() if getattr(found, name) != value}
    try:
        with transaction.atomic():
            Project.objects.filter(pk=found.pk).update(**values)
            if changed:
                record("project.change", found, label=values["name"], changed=changed)
    except IntegrityError:
        raise Refused(TAKEN) from None
    return bool(changed)


def put(found: Project, *, away: bool) -> None:
    """Into the archive, or back. Doing it twice is doing it once."""
    with transaction.atomic():
        changed = Project.objects.filter(pk=found.pk, archived_at__isnull=away).update(archived_at=timezone.now() if away else None)
        if changed:
            record("project.change", found, changed={"archived": [not away, away]})


def things(team: Team, kind: str, keys: Collection[int]) -> list[Any]:
    """The team's runs (by number), queues or datasets among ``keys``."""
    model, by = KINDS[kind]
    return list(model.objects.filter(team=team, **{f"{by}__in": keys}).only("pk", by))


def move(team: Team, kind: str, found: Collection[Any], target: Project | None) -> int:
    """How many of ``found`` (see ``things``) were elsewhere. Without ``target`` they are taken out of their projects."""
    model, _ = KINDS[kind]
    with transaction.atomic():
        stay = {"project": target} if target else {"project__isnull": True}
        count: int = model.objects.filter(pk__in=[thing.pk for thing in found]).exclude(**stay).update(project=target)
        if count:
            ids = [str(getattr(thing, "number", thing.pk)) for thing in found][:50]
            record("project.move", target, team=team, label=target.name if target else "no project", kind=kind, ids=ids, count=count)
    return count
