"""Queues that are due soon or overdue while items wait, and labels in conflict that wait for a decision."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from django.db.models import Count, Exists, OuterRef

from lab.accounts.addresses import team_path
from lab.alerts.events import Event, concerns
from lab.alerts.kinds import CONFLICTS, DUE
from lab.alerts.models import Rule
from lab.alerts.notifying import tell
from lab.labels.models import Item, ItemState, Judgement, Queue, QueueStatus

SOON = timedelta(days=1)
LATEST = timedelta(days=7)  # what has been overdue for longer is no news


def look(since: datetime, now: datetime) -> None:
    for kind, happened in ((DUE, due), (CONFLICTS, conflicts)):
        rules = list(Rule.objects.listening(kind))
        for event in happened(now) if rules else ():
            tell(event, [rule for rule in rules if concerns(rule, event)])


def due(now: datetime) -> Iterator[Event]:
    waiting = Item.objects.filter(queue=OuterRef("pk"), state=ItemState.OPEN)
    queues = Queue.objects.filter(Exists(waiting), due__gt=now - LATEST, due__lte=now + SOON).exclude(status=QueueStatus.CLOSED)
    for queue in queues.select_related("team"):
        if queue.due is None:
            continue
        late = queue.due <= now
        left = Item.objects.filter(queue=queue, state=ItemState.OPEN).count()
        subject = f"Queue “{queue.name}” is {'overdue' if late else 'due soon'}"
        text = f"{left} item{'' if left == 1 else 's'} wait{'s' if left == 1 else ''}; due {queue.due:%Y-%m-%d %H:%M} UTC."
        key = f"queue:{queue.pk}:{'overdue' if late else 'soon'}:{queue.due:%Y%m%d%H%M}"
        # That it is due soon concerns whoever may still do something; an old due date concerns nobody who came later.
        yield Event(queue.team, DUE, key, subject, text, team_path(queue.team, "queue", queue.pk), queue.due if late else now, queue=queue)


def conflicts(now: datetime) -> Iterator[Event]:
    """Of queues in which labels that differ came within the last day: once a day each."""
    day = now - timedelta(days=1)
    fresh = Judgement.objects.filter(item=OuterRef("pk"), changed_at__gt=day)
    items = Item.objects.filter(Exists(fresh), state=ItemState.CONFLICT).order_by()
    for pk in items.values_list("queue", flat=True).distinct():
        queue = Queue.objects.select_related("team").get(pk=pk)
        newest = Judgement.objects.filter(queue=pk, item__state=ItemState.CONFLICT).order_by("-changed_at").first()
        count = Item.objects.filter(queue=pk, state=ItemState.CONFLICT).aggregate(count=Count("pk"))["count"]
        subject = f"{count} conflict{'' if count == 1 else 's'} in queue “{queue.name}”"
        text = "Labels differ and wait for somebody who decides."
        at = newest.changed_at if newest else now
        url = team_path(queue.team, "queue-conflicts", queue.pk)
        yield Event(queue.team, CONFLICTS, f"queue:{pk}:conflicts:{at:%Y%m%d}", subject, text, url, at, queue=queue)
