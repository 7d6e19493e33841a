"""The rules everybody begins with in a team: their own runs, queues assigned to them, and what awaits their decision."""

from __future__ import annotations

from django.db import transaction
from django.db.models import Exists, OuterRef

from lab.teams.accounts.models import Membership
from lab.teams.accounts.permissions import TABLE
from lab.watching.alerts.kinds import KINDS
from lab.watching.alerts.models import Rule, Started

AT_ONCE = 200


def begin_all() -> None:
    """For members who have none yet: a query when there are none."""
    known = Started.objects.filter(team=OuterRef("team"), user=OuterRef("user"))
    fresh = Membership.objects.filter(~Exists(known), active=True)
    for member in fresh[:AT_ONCE]:
        create_default_rules(member)


def create_default_rules(member: Membership) -> None:
    """Once a person and team, however many ask at the same time."""
    with transaction.atomic():
        _, created = Started.objects.get_or_create(team_id=member.team_id, user_id=member.user_id)
        if created:
            Rule.objects.bulk_create(
                Rule(
                    team_id=member.team_id,
                    owner_id=member.user_id,
                    kind=kind.name,
                    mine=kind.about != "team",
                    email=kind.mail,
                    created_by_id=member.user_id,
                )
                for kind in KINDS.values()
                if kind.default and member.role in TABLE[kind.permission].roles
            )
