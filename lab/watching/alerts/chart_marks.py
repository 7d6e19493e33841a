"""Where on a run's charts people were told of something: each sees the alerts of the team and their own."""

from __future__ import annotations

from collections.abc import Sequence

from django.db.models import Q

from lab.teams.accounts.models import User
from lab.training.runs.models import Run
from lab.training.runs.run_marks import RunMark
from lab.watching.alerts.events import AlertEvent
from lab.watching.alerts.models import KEY, SUBJECT, AlertMark, Rule

MOST = 200  # of one run; the newest


def store_alert_marks(event: AlertEvent, rules: Sequence[Rule]) -> None:
    """Marks the event's step: for the whole team where one of its rules asked, else for each person whose rule did. Once per event."""
    if event.run is None or event.step is None or not rules:
        return
    owners = {rule.owner_id for rule in rules}
    words = {"run": event.run, "key": event.key[:KEY], "step": event.step, "label": event.mark[:SUBJECT]}
    AlertMark.objects.bulk_create(
        [AlertMark(owner_id=owner, reader=owner or 0, **words) for owner in ({None} if None in owners else owners)], ignore_conflicts=True
    )


def list_alert_marks(run: Run, viewer: User) -> list[RunMark]:
    marks = AlertMark.objects.filter(run=run).filter(Q(owner=None) | Q(owner=viewer)).order_by("-step", "-pk")[:MOST]
    seen = {mark.key: mark for mark in marks}  # a rule of the team and one's own tell of the same thing once
    return [{"step": mark.step, "kind": "alert", "label": f"{mark.label} at step {mark.step}"} for mark in reversed(seen.values())]
