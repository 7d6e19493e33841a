"""The members of a team as its page lists them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from allauth.account.models import EmailAddress
from allauth.mfa.models import Authenticator
from django.db.models import QuerySet

from lab.teams.accounts.models import Membership, Role, Team
from lab.teams.accounts.second_factor import FACTORS

RANK = {role.value: index for index, role in enumerate(Role)}


@dataclass(frozen=True)
class MemberRow:
    member: Membership
    second_factor: bool
    seen: datetime | None  # in whichever team
    me: bool
    verified: bool  # the address, by mail

    @property
    def status(self) -> str:
        if not self.member.active:
            return "deactivated"
        return "active" if self.member.user.is_active else "account closed"


def members_of(team: Team) -> QuerySet[Membership]:
    return Membership.objects.filter(team=team).select_related("user", "team")


def list_member_rows(team: Team, mine: Membership) -> list[MemberRow]:
    """Active members by role and address, then deactivated ones. Four queries, however many they are."""
    members = list(members_of(team))
    people = [member.user_id for member in members]
    factors = set(Authenticator.objects.filter(user__in=people, type__in=FACTORS).values_list("user", flat=True))
    proved = proved_people(people)
    rows = [row_of(member, mine, member.user_id in factors, member.user_id in proved) for member in members]
    return sorted(rows, key=lambda row: (not row.member.active, RANK[row.member.role], row.member.user.email.lower()))


def proved_people(people: Iterable[int]) -> set[int]:
    """Those of ``people`` (primary keys) whose address is verified."""
    return set(EmailAddress.objects.filter(user__in=people, primary=True, verified=True).values_list("user", flat=True))


def row_of(member: Membership, mine: Membership, factor: bool, verified: bool) -> MemberRow:
    return MemberRow(member, factor, member.user.seen_at, member.pk == mine.pk, verified)
