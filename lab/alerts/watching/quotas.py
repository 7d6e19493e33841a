"""Quotas that are nearly used up or over, once a month each. How many runs train at once is seen at every launch and is no news."""

from __future__ import annotations

from datetime import datetime

from lab.accounts.addresses import team_path
from lab.accounts.models import Team
from lab.alerts.events import Event, concerns
from lab.alerts.kinds import QUOTA
from lab.alerts.models import Rule
from lab.alerts.notifying import tell
from lab.usage.quotas import Use, near

COUNTED = ("gpu_hours", "storage")


def look(since: datetime, now: datetime) -> None:
    rules = list(Rule.objects.listening(QUOTA))
    for team in {rule.team for rule in rules}:
        for use in near(team):
            if use.name in COUNTED:
                event = event_of(team, use, now)
                tell(event, [rule for rule in rules if concerns(rule, event)])


def event_of(team: Team, use: Use, now: datetime) -> Event:
    word = "used up" if use.full else "nearly used up"
    subject = f"{use.title} of team {team.name}: {word}"
    text = f"{use.words} used." + (" Runs over it wait until there is room." if use.full else "")
    return Event(team, QUOTA, f"quota:{use.name}:{'over' if use.full else 'near'}:{now:%Y-%m}", subject, text, team_path(team, "usage"))
