"""What the person of a request may do in its team, by the permission table."""

from __future__ import annotations

from django.http import HttpRequest

from lab.accounts.permissions import allowed


def role_of(request: HttpRequest) -> str:
    """The person's role in the team of the request."""
    return str(request.membership.role)  # type: ignore[attr-defined]


def may(request: HttpRequest, permission: str) -> bool:
    """Raises KeyError for a permission that is not in the table."""
    return allowed(role_of(request), permission)
