"""The request as the lab's views get it, and whether htmx asks for a piece of a page."""

from django.http import HttpRequest
from django_htmx.middleware import HtmxDetails

from lab.accounts.models import Team, User


class LabRequest(HttpRequest):
    user: User  # type: ignore[assignment]
    team: Team
    htmx: HtmxDetails


def wants_fragment(request: LabRequest) -> bool:
    """True for a swap; going back in the history needs the whole page."""
    return bool(request.htmx) and not request.htmx.history_restore_request
