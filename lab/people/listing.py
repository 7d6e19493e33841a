"""The members of a team as its page lists them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from allauth.mfa.models import Authenticator
from allauth.usersessions.models import UserSession
from django.db.models import Max, QuerySet

from lab.accounts.models import Membership, Role, Team
from lab.accounts.second_factor import FACTORS

RANK = {role.value: place for place, role in enumerate(Role)}


@dataclass(frozen=True)
class Row:
    member: Membership
    second_factor: bool
    seen: datetime | None  # in whichever team
    me: bool

    @property
    def status(self) -> str:
        if not self.member.active:
            return "deactivated"
        return "active" if self.member.user.is_active else "account closed"


def members_of(team: Team) -> QuerySet[Membership]:
    return Membership.objects.filter(team=team).select_related("user", "team")


def rows(team: Team, mine: Membership) -> list[Row]:
    """Active members by role and address, then deactivated ones. Four queries, however many they are."""
    members = list(members_of(team))
    people = [member.user_id for member in members]
    factors = set(Authenticator.objects.filter(user__in=people, type__in=FACTORS).values_list("user", flat=True))
    seen = dict(UserSession.objects.filter(user__in=people).values_list("user").annotate(Max("last_seen_at")))
    found = [row_of(member, mine, member.user_id in factors, seen.get(member.user_id)) for member in members]
    return sorted(found, key=lambda row: (not row.member.active, RANK[row.member.role], row.member.user.email.lower()))


def row_of(member: Membership, mine: Membership, factor: bool, seen: datetime | None) -> Row:
    moments = [moment for moment in (seen, member.user.last_login) if moment is not None]
    return Row(member, factor, max(moments, default=None), member.pk == mine.pk)
