"""What a person who leaves a team holds here, in words. Nothing has to be undone: rules of who is not active in the team tell nobody."""

from __future__ import annotations

from lab.teams.accounts.models import Team, User
from lab.teams.people.departures import MemberHolding
from lab.watching.alerts.models import Rule


def list_held_alert_rules(team: Team, user: User) -> list[MemberHolding]:
    count = Rule.objects.of(team, user).filter(enabled=True).count()
    return [MemberHolding(f"{count} alert rule{'' if count == 1 else 's'} of theirs stop{'s' if count == 1 else ''}.")] if count else []
