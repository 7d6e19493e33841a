"""From a page of one team to another team: the same kind of page where there is one that the person may see."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from django.http import HttpRequest

from lab.teams.accounts.models import Membership, Team
from lab.teams.accounts.permissions import OUTSIDE_TEAMS, find_route_access, is_role_allowed


@dataclass(frozen=True)
class TeamSwitch:
    team: Team
    role: str
    href: str
    current: bool


def list_team_switches(request: HttpRequest) -> list[TeamSwitch]:
    """One for every team of the person, the one of this page marked."""
    current = request.membership.pk  # type: ignore[attr-defined]
    path = same_page(request)
    return [TeamSwitch(member.team, member.role, f"/t/{member.team.slug}{path(member)}", member.pk == current) for member in request.memberships]  # type: ignore[attr-defined]


def same_page(request: HttpRequest) -> Callable[[Membership], str]:
    """Where a member of another team goes from this page: to the same one if it names no object, which every team has its own of."""
    match = request.resolver_match
    access = find_route_access(match.view_name) if match and not match.kwargs and request.method in ("GET", "HEAD") else None
    permission = access.read if access and access.read not in OUTSIDE_TEAMS else ""
    return lambda member: request.path_info if permission and is_role_allowed(member.role, permission) else "/"


def same_path_elsewhere(request: HttpRequest) -> list[TeamSwitch]:
    """For a page that was not found: the person's other teams, each with this path. Whether it is there is not looked up."""
    memberships: list[Membership] = getattr(request, "memberships", [])
    slug = getattr(request, "team_slug", "")
    return [
        TeamSwitch(member.team, member.role, f"/t/{member.team.slug}{request.path_info}", False) for member in memberships if member.team.slug != slug
    ]
