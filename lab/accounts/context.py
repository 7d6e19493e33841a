"""What templates ask about the person: ``{% if may.runs.launch %}``."""

from __future__ import annotations

from typing import Any

from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest
from django.utils.functional import SimpleLazyObject

from lab.accounts.models import JoinRequest, Team, User
from lab.accounts.permissions import TABLE, allowed
from lab.accounts.roles import role_of
from lab.accounts.second_factor import needs_second_factor, teams_that_wait
from lab.accounts.switching import same_path_elsewhere, switches


class May:
    """``may.runs.launch`` in a template: whether the person's role has the permission ``runs.launch``. A name that is not in the table raises."""

    def __init__(self, role: str, beginning: str = "") -> None:
        self.role, self.beginning = role, beginning

    def __getitem__(self, name: str) -> Any:
        full = f"{self.beginning}{name}"
        return allowed(self.role, full) if full in TABLE else May(self.role, f"{full}.")


def permissions(request: HttpRequest) -> dict[str, Any]:
    """Looked up when a template asks: pages outside a team never do."""
    return {"may": SimpleLazyObject(lambda: May(role_of(request)))}


def frames(request: HttpRequest) -> dict[str, Any]:
    """For account pages, which people without a team, or before a closed one, see too; callables, so that other pages pay nothing."""
    return {
        "account_frame": lambda: frame(request),
        "waiting_teams": lambda: waiting_teams(request),
        "switches": lambda: switches(request),
        "same_path_elsewhere": lambda: same_path_elsewhere(request),
        "people_waiting": lambda: people_waiting(request),
    }


def frame(request: HttpRequest) -> str:
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
