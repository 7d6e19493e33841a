"""What a person may do in their team."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse

from lab.accounts.models import Role

LEADS = frozenset({Role.OWNER, Role.ADMIN, Role.RESEARCHER})  # make queues, review, adjudicate, freeze, train, recall
ANNOTATORS = LEADS | {Role.ANNOTATOR}


def role_of(request: HttpRequest) -> str:
    """The person's role in the team of the request; one query the first time it is asked."""
    if not hasattr(request, "_role"):
        found = request.user.memberships.filter(team=request.team).values_list("role", flat=True).first()  # type: ignore[union-attr,attr-defined]
        request._role = found or ""  # type: ignore[attr-defined]
    return str(request._role)  # type: ignore[attr-defined]


def may_annotate(request: HttpRequest) -> bool:
    return role_of(request) in ANNOTATORS


def may_lead(request: HttpRequest) -> bool:
    return role_of(request) in LEADS


def annotators_only(view: Callable[..., HttpResponse]) -> Callable[..., HttpResponse]:
    """Answers viewers with 403 and words."""

    @wraps(view)
    def guarded(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        if not may_annotate(request):
            team = request.team.name  # type: ignore[attr-defined]
            raise PermissionDenied(f"You may read in team {team} but not annotate: your role is viewer. An owner or admin can change it.")
        return view(request, *args, **kwargs)

    return guarded


def leads_only(view: Callable[..., HttpResponse]) -> Callable[..., HttpResponse]:
    """Answers annotators and viewers with 403 and words."""

    @wraps(view)
    def guarded(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        if not may_lead(request):
            team = request.team.name  # type: ignore[attr-defined]
            raise PermissionDenied(
                f"This is for researchers, admins and owners of team {team}: your role is {role_of(request)}. An admin can change it."
            )
        return view(request, *args, **kwargs)

    return guarded
