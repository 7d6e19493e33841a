"""Choosing a project of the team: what forms and filters offer, and what an input stands for."""

from __future__ import annotations

from django.db.models import Q

from lab.lib.numbers import MAX_ID, parse_whole_number
from lab.lib.refusals import Refusal
from lab.teams.accounts.models import Project, Team

NONE = "none"  # as a filter: in no project


def key_of(text: str) -> int | None:
    """An id that fits the database; None for anything else."""
    return parse_whole_number(text, MAX_ID, 1)


def list_project_choices(team: Team, also: str | int | None = None) -> list[Project]:
    """The team's projects that are not archived, by name, and the one that is chosen already."""
    chosen = key_of(str(also or ""))
    offered = Q(archived_at=None) | Q(pk=chosen) if chosen else Q(archived_at=None)
    return list(Project.objects.of(team).filter(offered).order_by("name"))


def parse_project(team: Team, text: str) -> Project | None:
    """The project an input names; None for an empty one. Raises Refusal."""
    if not text.strip():
        return None
    key = key_of(text.strip())
    project = Project.objects.of(team).filter(pk=key).first() if key else None
    if project is None:
        raise Refusal("Your team has no such project: choose another, or none.", field="project", status=422)
    return project


def find_project_problem(team: Team, text: str) -> dict[str, str]:
    """What is wrong with the input, as field → words."""
    try:
        parse_project(team, text)
    except Refusal as error:
        return {"project": str(error)}
    return {}


def clean_project_filter(team: Team, text: str) -> str:
    """The value of a filter: an id of the team's projects or ``none``; empty for anything else."""
    if text == NONE:
        return NONE
    key = key_of(text)
    return str(key) if key and Project.objects.of(team).filter(pk=key).exists() else ""


def build_project_condition(chosen: str) -> Q:
    """What a cleaned filter (``clean_project_filter``) asks of runs, queues or datasets."""
    return Q() if not chosen else Q(project=None) if chosen == NONE else Q(project=int(chosen))
