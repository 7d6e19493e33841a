"""Projects: what groups runs, queues and datasets of the team."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.db import transaction
from django.http import HttpRequest
from ninja import Field, Schema, Status

from lab.data.projects import verbs
from lab.data.projects.pages import annotate_project_counts
from lab.data.projects.verbs import ABOUT_LENGTH, MOST_MOVED, NAME_LENGTH
from lab.edges.api.base import Query, RequestBody, caller_of, make_router, one_of, require_permission
from lab.edges.api.idempotency import Key, run_idempotent_action
from lab.edges.api.operations.account import Person, serialize_person
from lab.edges.api.page_cursors import After, Limit, Page, paginate_rows, parse_after_id
from lab.edges.api.problems import FieldProblem, make_invalid_problem, make_validation_problem
from lab.lib.numbers import MAX_ID, MAX_INTEGER
from lab.teams.accounts.addresses import build_absolute_url, team_path
from lab.teams.accounts.models import Project

router = make_router("Projects")
FIELDS = {"run": "runs", "queue": "queues", "dataset": "datasets"}  # kind → field of a move


class ProjectOut(Schema):
    id: int
    name: str
    about: str
    url: str
    runs: int
    open: int = Field(description="Runs that have not ended.")
    queues: int
    datasets: int
    created_by: Person | None
    created_at: datetime
    archived_at: datetime | None = Field(description="When it was archived; null if it is not.")


class ProjectIn(RequestBody):
    name: str = Field(max_length=NAME_LENGTH, examples=["Word problems"])
    about: str = Field("", max_length=ABOUT_LENGTH)


class ProjectChange(RequestBody):
    """Omitted fields stay unchanged."""

    name: str | None = Field(None, max_length=NAME_LENGTH, examples=["Sums"])
    about: str | None = Field(None, max_length=ABOUT_LENGTH)
    archived: bool | None = Field(None, description="Archives or restores it; its runs, queues and datasets stay unchanged.")


class MoveIn(RequestBody):
    project: int | None = Field(description="Id of the target project; null removes them from their project.", examples=[1])
    runs: list[int] = Field([], max_length=MOST_MOVED, description="Numbers of runs.", examples=[[17, 18]])
    queues: list[int] = Field([], max_length=MOST_MOVED, description="Ids of queues.")
    datasets: list[int] = Field([], max_length=MOST_MOVED, description="Ids of datasets.")


class Moved(Schema):
    """Number of items moved; items that were already there are not counted."""

    runs: int
    queues: int
    datasets: int


def project_of(request: HttpRequest, project_id: int) -> Project:
    project: Project = one_of(annotate_project_counts(caller_of(request).team).select_related("team", "created_by"), project_id)
    return project


def serialize_project(project: Any) -> dict[str, Any]:
    """``project`` comes with its counts."""
    fields = {name: getattr(project, name) for name in ("name", "about", "created_at", "archived_at")}
    counts = {"runs": project.run_count, "open": project.open_count, "queues": project.queue_count, "datasets": project.dataset_count}
    by = serialize_person(project.created_by) if project.created_by else None
    return {**fields, **counts, "id": project.pk, "created_by": by, "url": build_absolute_url(team_path(project.team, "project", project.pk))}


@router.get("/projects", auth=require_permission("runs.read"), response=Page[ProjectOut], summary="List projects")
def list_projects(
    request: HttpRequest, after: After, limit: Limit, archived: bool = Query(False, description="List archived projects instead.")
) -> object:
    """Newest first."""
    rows = (
        annotate_project_counts(caller_of(request).team)
        .filter(archived_at__isnull=not archived, pk__lt=parse_after_id(after))
        .select_related("team", "created_by")
    )
    return paginate_rows(list(rows.order_by("-pk")[: limit + 1]), limit, lambda row: row.pk, serialize_project)


@router.get("/projects/{int:project_id}", auth=require_permission("runs.read"), response=ProjectOut, summary="One project")
def get_project(request: HttpRequest, project_id: int) -> object:
    """To list its runs, send `project` to the list of runs."""
    return serialize_project(project_of(request, project_id))


@router.post("/projects", auth=require_permission("projects.manage"), response={201: ProjectOut, 200: ProjectOut}, summary="Create a project")
def make_project(request: HttpRequest, given: ProjectIn, key: Key) -> object:
    """Names are unique in a team, ignoring case."""
    caller = caller_of(request)

    def act() -> list[Any]:
        return [verbs.add_project(caller.team, caller.user, verbs.clean_project_values(given.model_dump())).pk]

    [key_made], fresh = run_idempotent_action(request, caller, key, act)
    return Status(201 if fresh else 200, serialize_project(project_of(request, int(key_made))))


@router.patch("/projects/{int:project_id}", auth=require_permission("projects.manage"), response=ProjectOut, summary="Change a project")
def change_project(request: HttpRequest, project_id: int, given: ProjectChange) -> object:
    """Changes its name or description, archives or restores it."""
    project = project_of(request, project_id)
    sent = given.model_dump(include={"name", "about"}, exclude_none=True)
    if sent:
        verbs.update_project(project, verbs.clean_project_values({"name": project.name, "about": project.about, **sent}))
    if given.archived is not None:
        verbs.set_project_archived(project, away=given.archived)
    return serialize_project(project_of(request, project_id))


@router.post("/projects/move", auth=require_permission("projects.manage"), response=Moved, summary="Move items between projects")
def move_things(request: HttpRequest, given: MoveIn) -> object:
    """Moves runs, queues and datasets. If one of them does not exist, nothing is moved."""
    team = caller_of(request).team
    target = Project.objects.of(team).filter(pk=given.project).first() if given.project is not None else None
    if given.project is not None and target is None:
        raise make_invalid_problem("project", "your team has no such project", "give the id of one of its projects, or null")
    if target is not None and target.archived_at:
        raise make_invalid_problem("project", f"“{target.name}” is archived", "restore it first, or choose another project")
    things = {
        kind: verbs.find_movable_items(team, kind, [key for key in getattr(given, FIELDS[kind]) if 0 < key <= get_key_limit(kind)])
        for kind in verbs.KINDS
    }
    missing = [problem for kind, rows in things.items() for problem in find_unknown_keys(kind, getattr(given, FIELDS[kind]), rows)]
    if missing:
        raise make_validation_problem(missing)
    with transaction.atomic():
        return {FIELDS[kind]: verbs.assign_project(team, kind, rows, target) for kind, rows in things.items()}


def get_key_limit(kind: str) -> int:
    return MAX_INTEGER if kind == "run" else MAX_ID


def find_unknown_keys(kind: str, keys: list[int], rows: list[Any]) -> list[FieldProblem]:
    """Those of ``keys`` that are not among ``rows``."""
    known = {getattr(row, verbs.KINDS[kind][1]) for row in rows}
    return [
        FieldProblem(field=f"{FIELDS[kind]}.{index}", message=f"your team has no {kind} {key}", fix="remove it")
        for index, key in enumerate(keys)
        if key not in known
    ]
