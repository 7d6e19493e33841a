"""Quotas that are nearly used up or over, once a month each. How many runs train at once is seen at every launch and is no news."""

from __future__ import annotations

from datetime import datetime

from lab.teams.accounts.addresses import team_path
from lab.teams.accounts.models import Team
from lab.watching.alerts.events import AlertEvent, is_event_for_rule
from lab.watching.alerts.kinds import QUOTA
from lab.watching.alerts.models import Rule
from lab.watching.alerts.notices import dispatch_event
from lab.watching.usage.quotas import QuotaUse, list_near_quotas

COUNTED = ("gpu_hours", "storage")


def watch_quotas(since: datetime, now: datetime) -> None:
    rules = list(Rule.across_teams.listening(QUOTA))
    for team in {rule.team for rule in rules}:
        for use in list_near_quotas(team):
            if use.name in COUNTED:
                event = event_of(team, use, now)
                dispatch_event(event, [rule for rule in rules if is_event_for_rule(rule, event)])


def event_of(team: Team, use: QuotaUse, now: datetime) -> AlertEvent:
    word = "used up" if use.full else "nearly used up"
    subject = f"{use.title} of team {team.name}: {word}"
    text = f"{use.words} used." + (" Runs over quota wait until there is room." if use.full else "")
    return AlertEvent(team, QUOTA, f"quota:{use.name}:{'over' if use.full else 'near'}:{now:%Y-%m}", subject, text, team_path(team, "usage"))
