"""What templates ask about the person: ``{% if may.runs.launch %}``."""

from __future__ import annotations

from typing import Any

from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest
from django.utils.functional import SimpleLazyObject

from lab.teams.accounts.models import JoinRequest, Team, User
from lab.teams.accounts.permissions import TABLE, is_role_allowed
from lab.teams.accounts.roles import role_of
from lab.teams.accounts.second_factor import needs_second_factor, teams_that_wait
from lab.teams.accounts.team_switch import list_team_switches, same_path_elsewhere


class PermissionLookup:
    """``may.runs.launch`` in a template: whether the person's role has the permission ``runs.launch``. A name that is not in the table raises."""

    def __init__(self, role: str, beginning: str = "") -> None:
        self.role, self.beginning = role, beginning

    def __getitem__(self, name: str) -> Any:
        full = f"{self.beginning}{name}"
        return is_role_allowed(self.role, full) if full in TABLE else PermissionLookup(self.role, f"{full}.")


def build_permission_context(request: HttpRequest) -> dict[str, Any]:
    """Looked up when a template asks: pages outside a team never do."""
    return {"may": SimpleLazyObject(lambda: PermissionLookup(role_of(request)))}


def build_account_context(request: HttpRequest) -> dict[str, Any]:
    """For account pages, which people without a team, or before a closed one, see too; callables, so that other pages pay nothing."""
    return {
        "account_frame": lambda: choose_account_template(request),
        "waiting_teams": lambda: waiting_teams(request),
        "switches": lambda: list_team_switches(request),
        "same_path_elsewhere": lambda: same_path_elsewhere(request),
        "people_waiting": lambda: people_waiting(request),
    }


def choose_account_template(request: HttpRequest) -> str:
    """The template that an account page extends: with the team's rail where the person may enter the team."""
    try:
        closed = needs_second_factor(request.membership)  # type: ignore[attr-defined]
    except (PermissionDenied, Http404):
        closed = True
    return "account/outside.html" if closed else "base.html"


def waiting_teams(request: HttpRequest) -> list[Team]:
    """Teams that open once the person has a second factor."""
    return teams_that_wait(request.user) if isinstance(request.user, User) else []


def people_waiting(request: HttpRequest) -> int:
    """How many people ask to be let into the team; a query, so ask only where the team takes requests."""
    return JoinRequest.objects.filter(team=request.team, answered_at=None, user__is_active=True).count()  # type: ignore[attr-defined]
