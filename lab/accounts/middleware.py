"""Puts the person's team on the request; every query of a view starts from it."""

from collections.abc import Callable

from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.utils.functional import SimpleLazyObject

from lab.accounts.models import Team


def team_of(request: HttpRequest) -> Team:
    """The team of the person's first membership. Raises PermissionDenied for somebody who is in none."""
    membership = request.user.memberships.select_related("team").order_by("pk").first() if request.user.is_authenticated else None
    if membership is None:
        raise PermissionDenied("You are not a member of any team yet; ask an admin to add you.")
    return membership.team


class TeamMiddleware:
    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        request.team = SimpleLazyObject(lambda: team_of(request))  # type: ignore[attr-defined]
        return self.get_response(request)
