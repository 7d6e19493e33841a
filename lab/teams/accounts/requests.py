"""The request as the lab's views get it, and whether htmx asks for a piece of a page."""

from django.http import HttpRequest
from django_htmx.middleware import HtmxDetails

from lab.teams.accounts.models import Membership, Team, User


class LabRequest(HttpRequest):
    """Of somebody who is signed in and in the team of the address; ``team_slug`` is "" where the address names none."""

    user: User  # type: ignore[assignment]
    team: Team
    membership: Membership
    team_slug: str
    htmx: HtmxDetails


def wants_fragment(request: LabRequest) -> bool:
    """True for a swap; going back in the history needs the whole page."""
    return bool(request.htmx) and not request.htmx.history_restore_request
