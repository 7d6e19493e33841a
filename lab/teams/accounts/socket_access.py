"""What a socket asks again and again: whether its session still exists, and into which teams its person may look."""

from __future__ import annotations

from collections import defaultdict

from django.contrib.sessions.models import Session

from lab.lib.shared_queries import SharedQuery
from lab.teams.accounts.models import Membership
from lab.teams.accounts.permissions import TABLE
from lab.teams.accounts.second_factor import open_to_their_members

PersonPermission = tuple[int, str]  # the id of a person, a permission of TABLE


def find_sessions(keys: set[str]) -> dict[str, bool]:
    """Those that exist; signing out deletes them."""
    return dict.fromkeys(Session.objects.filter(session_key__in=keys).values_list("session_key", flat=True), True)


def find_open_teams(asked: set[PersonPermission]) -> dict[PersonPermission, frozenset[int]]:
    """Ids of the teams in which each person has the permission now. Every socket asks here, so that none forgets a condition."""
    found: dict[PersonPermission, set[int]] = defaultdict(set)
    for permission in {permission for _, permission in asked}:
        people = [user_id for user_id, one in asked if one == permission]
        members = Membership.objects.filter(user__in=people, user__is_active=True, active=True, role__in=TABLE[permission].roles)
        for user_id, team_id in open_to_their_members(members).values_list("user_id", "team_id"):
            found[user_id, permission].add(team_id)
    return {key: frozenset(teams) for key, teams in found.items()}


SESSIONS = SharedQuery(find_sessions)
OPEN_TEAMS = SharedQuery(find_open_teams)


async def read_open_teams(user_id: int, permission: str) -> frozenset[int]:
    return await OPEN_TEAMS.ask((user_id, permission)) or frozenset()
