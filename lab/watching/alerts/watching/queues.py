"""Queues that are due soon or overdue while items wait, and labels in conflict that wait for a decision."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from django.db.models import Count, Exists, OuterRef

from lab.labelling.labels.models import Item, ItemState, Judgement, Queue, QueueStatus
from lab.teams.accounts.addresses import team_path
from lab.watching.alerts.events import AlertEvent, is_event_for_rule
from lab.watching.alerts.kinds import CONFLICTS, DUE
from lab.watching.alerts.models import Rule
from lab.watching.alerts.notices import dispatch_event

SOON = timedelta(days=1)
LATEST = timedelta(days=7)  # what has been overdue for longer is no news


def watch_queues(since: datetime, now: datetime) -> None:
    for kind, happened in ((DUE, build_due_events), (CONFLICTS, build_conflict_events)):
        rules = list(Rule.across_teams.listening(kind))
        for event in happened(now) if rules else ():
            dispatch_event(event, [rule for rule in rules if is_event_for_rule(rule, event)])


def build_due_events(now: datetime) -> Iterator[AlertEvent]:
    waiting = Item.objects.filter(queue=OuterRef("pk"), state=ItemState.OPEN)
    queues = Queue.across_teams.filter(Exists(waiting), due__gt=now - LATEST, due__lte=now + SOON).exclude(status=QueueStatus.CLOSED)
    for queue in queues.select_related("team"):
        if queue.due is None:
            continue
        late = queue.due <= now
        left = Item.objects.filter(queue=queue, state=ItemState.OPEN).count()
        subject = f"Queue “{queue.name}” is {'overdue' if late else 'due soon'}"
        text = f"{left} item{'' if left == 1 else 's'} left; due {queue.due:%Y-%m-%d %H:%M} UTC."
        key = f"queue:{queue.pk}:{'overdue' if late else 'soon'}:{queue.due:%Y%m%d%H%M}"
        # That it is due soon concerns whoever may still do something; an old due date concerns nobody who came later.
        yield AlertEvent(queue.team, DUE, key, subject, text, team_path(queue.team, "queue", queue.pk), queue.due if late else now, queue=queue)


def build_conflict_events(now: datetime) -> Iterator[AlertEvent]:
    """Of queues in which labels that differ came within the last day: once a day each."""
    day = now - timedelta(days=1)
    fresh = Judgement.objects.filter(item=OuterRef("pk"), changed_at__gt=day)
    items = Item.across_teams.filter(Exists(fresh), state=ItemState.CONFLICT).order_by()
    for pk in items.values_list("queue", flat=True).distinct():
        queue = Queue.across_teams.select_related("team").get(pk=pk)
        newest = Judgement.across_teams.filter(queue=pk, item__state=ItemState.CONFLICT).order_by("-changed_at").first()
        count = Item.across_teams.filter(queue=pk, state=ItemState.CONFLICT).aggregate(count=Count("pk"))["count"]
        subject = f"{count} conflict{'' if count == 1 else 's'} in queue “{queue.name}”"
        text = "Labels differ and need a decision."
        at = newest.changed_at if newest else now
        url = team_path(queue.team, "queue-conflicts", queue.pk)
        yield AlertEvent(queue.team, CONFLICTS, f"queue:{pk}:conflicts:{at:%Y%m%d}", subject, text, url, at, queue=queue)
