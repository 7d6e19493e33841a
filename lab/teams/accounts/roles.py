"""What the person of a request may do in its team, by the permission table."""

from __future__ import annotations

from django.http import HttpRequest

from lab.teams.accounts.permissions import is_role_allowed


def role_of(request: HttpRequest) -> str:
    """The person's role in the team of the request."""
    return str(request.membership.role)  # type: ignore[attr-defined]


def has_team_permission(request: HttpRequest, permission: str) -> bool:
    """Raises KeyError for a permission that is not in the table."""
    return is_role_allowed(role_of(request), permission)
