"""The request as the pages of this room get it."""

from django.http import HttpRequest

from lab.accounts.models import Membership, Team, User

MAX_ID = 2**63 - 1  # ids beyond it are in no database


class TeamRequest(HttpRequest):
    user: User  # type: ignore[assignment]
    team: Team
    membership: Membership
    team_slug: str
