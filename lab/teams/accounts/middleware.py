"""Puts the team of the address, and the person's membership in it, on the request, and refuses what the permission table does not allow.

The team stands in the address, ``/t/<team>/runs/``, as Django's script prefix: ``reverse`` and ``{% url %}`` write it by themselves, and the
paths in ``urls.py`` do not mention it. A page opened without it goes on in the team the person was in last.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseNotAllowed, JsonResponse
from django.shortcuts import redirect
from django.urls import get_script_prefix, set_script_prefix
from django.utils.functional import SimpleLazyObject

from lab.lib.log_context import get_log_context
from lab.teams.accounts.models import Membership, Team
from lab.teams.accounts.permissions import OUTSIDE_TEAMS, PUBLIC, STAFF, explain_role_refusal, find_route_access, is_role_allowed
from lab.teams.accounts.second_factor import STAFF_WORDS, closed_words, is_operator, needs_second_factor

PREFIX = re.compile(r"^/t/([-\w]{1,50})(/.*)$", re.ASCII | re.DOTALL)
LAST_TEAM = "team"  # key of the session: the team the person was in last


class TeamAddressMiddleware:
    """Takes the team out of the path for everything after it and puts it before every address written meanwhile."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        match = PREFIX.match(request.path_info)
        request.team_slug = match[1] if match else ""  # type: ignore[attr-defined]
        if match is None:
            return self.get_response(request)
        outer = get_script_prefix()
        request.path_info = match[2]
        set_script_prefix(f"{outer}t/{match[1]}/")
        try:
            return self.get_response(request)
        finally:
            set_script_prefix(outer)


def memberships_of(request: HttpRequest) -> list[Membership]:
    """Of all teams the person is in, in the order of their names. A query."""
    user: Any = request.user
    return list(user.memberships.filter(active=True).select_related("team").order_by("team__name", "pk")) if user.is_authenticated else []


def membership_of(request: HttpRequest) -> Membership:
    """The membership in the address's team, else in the last one. Raises Http404 for a team the person is not in, PermissionDenied without any."""
    mine: list[Membership] = request.memberships  # type: ignore[attr-defined]
    slug = request.team_slug  # type: ignore[attr-defined]
    if slug:
        memberships = [membership for membership in mine if membership.team.slug == slug]
        if not memberships:
            raise Http404("no such team, or you are not a member")
        return memberships[0]
    last = request.session.get(LAST_TEAM)
    memberships = sorted(mine, key=lambda membership: (membership.team.slug != last, membership.pk))
    if not memberships:
        raise PermissionDenied("You are not a member of any team; ask an admin to invite you.")
    return memberships[0]


def refuse_request(request: HttpRequest, message: str) -> HttpResponse:
    """403 in the words of whoever asks: JSON for a script that sent JSON, else the page. Raises PermissionDenied for the page."""
    fix = "An owner or admin of the team can change your role."
    if request.content_type == "application/json":
        return JsonResponse({"message": message, "fix": fix}, status=403)
    raise PermissionDenied(f"{message} {fix}")


def is_navigation(request: HttpRequest) -> bool:
    """Whether a person opens a page or sends a form, as opposed to a fragment or a script's request."""
    return "text/html" in request.headers.get("Accept", "") and not request.headers.get("HX-Request")


class PermissionMiddleware:
    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        request.memberships = SimpleLazyObject(lambda: memberships_of(request))  # type: ignore[attr-defined]
        request.membership = SimpleLazyObject(lambda: membership_of(request))  # type: ignore[attr-defined]
        request.team = SimpleLazyObject(lambda: request.membership.team)  # type: ignore[attr-defined]
        return self.get_response(request)

    def process_view(self, request: HttpRequest, view: Any, args: Any, kwargs: Any) -> HttpResponse | None:
        match = request.resolver_match
        access = find_route_access(match.view_name) if match else None
        if access is None:
            raise PermissionDenied("This address is in no line of the permission table.")
        permission = access.required_permission(request.method or "GET")
        if not permission:
            return HttpResponseNotAllowed([*(["GET", "HEAD"] if access.read else []), *(["POST"] if access.write else [])])
        if permission == PUBLIC or not request.user.is_authenticated:  # LoginRequiredMiddleware has seen to everybody who must sign in
            return None
        if permission == STAFF:
            return self.for_staff(request)
        if permission in OUTSIDE_TEAMS:
            return None
        membership = request.membership  # type: ignore[attr-defined]
        if needs_second_factor(membership):
            return self.closed(request, membership.team)
        if not is_role_allowed(membership.role, permission):
            return refuse_request(request, explain_role_refusal(permission, membership.role, membership.team.name))
        context = get_log_context()
        context.team, context.run = str(membership.team_id), str(kwargs.get("run_id", ""))
        return self.with_team(request, membership)

    def for_staff(self, request: HttpRequest) -> HttpResponse | None:
        """Operators have a second factor; staff without one are led to setting one up, and nobody else learns that there is such a page."""
        user: Any = request.user
        if not user.is_staff:
            raise Http404
        if is_operator(user):
            return None
        if is_navigation(request):
            messages.warning(request, STAFF_WORDS)
            return redirect("mfa_index")
        return JsonResponse({"message": STAFF_WORDS, "fix": "Open your account page in this browser and set one up."}, status=403)

    def closed(self, request: HttpRequest, team: Team) -> HttpResponse:
        """The team asks for a second factor and the person has none: a page leads to setting one up, whatever else is asked gets the words."""
        if is_navigation(request):
            return redirect("mfa_index")
        return JsonResponse({"message": closed_words(team), "fix": "Open the lab in this browser: it leads to setting one up."}, status=403)

    def with_team(self, request: HttpRequest, membership: Membership) -> HttpResponse | None:
        """A page that a person opens without a team in its address goes on with it, so that a copied link means the same to everybody."""
        slug = membership.team.slug
        if request.team_slug:  # type: ignore[attr-defined]
            if request.session.get(LAST_TEAM) != slug:
                request.session[LAST_TEAM] = slug
            return None
        opened = request.method == "GET" and is_navigation(request)
        return redirect(f"{get_script_prefix()}t/{slug}{request.get_full_path()}") if opened else None
