"""What a rule would have told in the last week, where the lab still knows."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import Q
from django.utils import timezone

from lab.alerts.events import of_interest, queue_of_interest
from lab.alerts.kinds import DUE, FAILED, FINISHED, FLAT, METRIC
from lab.alerts.models import Direction, Rule
from lab.alerts.watching.metrics import finite, narrowed, still
from lab.labels.models import Queue
from lab.runs import metrics
from lab.runs.models import ACTIVE, MetricChunk, Run, Status

WEEK = timedelta(days=7)
EXAMPLES = 3
MOST_RUNS = 200  # that a preview looks at
READ_RUNS = 20  # whose points it reads


@dataclass(frozen=True)
class Preview:
    """``count`` None: the lab keeps no history of such things."""

    count: int | None
    examples: list[str]
    looked: int = 0  # runs that were looked at


def preview(rule: Rule) -> Preview:
    since = timezone.now() - WEEK
    if rule.kind in (FINISHED, FAILED):
        status = Status.FINISHED if rule.kind == FINISHED else Status.FAILED
        return of_runs(rule, narrowed(rule).filter(status=status, finished_at__gte=since))
    if rule.kind == METRIC:
        return of_runs(rule, trained(rule, since), beyond)
    if rule.kind == FLAT:
        return of_runs(rule, trained(rule, since)[:READ_RUNS], flat_at_the_end)
    if rule.kind == DUE:
        queues = Queue.objects.of(rule.team).filter(due__gte=since, due__lte=timezone.now())
        found = [queue.name for queue in queues if queue_of_interest(rule, queue)]
        return Preview(len(found), found[:EXAMPLES])
    return Preview(None, [])


def trained(rule: Rule, since: datetime) -> list[Run]:
    runs = narrowed(rule).filter(Q(status__in=ACTIVE) | Q(finished_at__gte=since)).order_by("-created_at")
    return list(runs[:MOST_RUNS])


def of_runs(rule: Rule, runs: Iterable[Run], test: Callable[[Rule, Run], bool] | None = None) -> Preview:
    looked = [run for run in runs if of_interest(rule, run)]
    found = [run for run in looked if test is None or test(rule, run)]
    return Preview(len(found), [str(run) for run in found[:EXAMPLES]], len(looked))


def beyond(rule: Rule, run: Run) -> bool:
    """From the range each chunk keeps, without reading a point."""
    far = Q(hi__gt=rule.number) if rule.direction == Direction.ABOVE else Q(lo__lt=rule.number)
    return MetricChunk.objects.filter(far, run=run, name=rule.metric).exists()


def flat_at_the_end(rule: Rule, run: Run) -> bool:
    one = finite(metrics.tail(run.pk, rule.metric, rule.steps or 1))
    return one is not None and still(one, rule.steps or 1, rule.number or 0.0) is not None
