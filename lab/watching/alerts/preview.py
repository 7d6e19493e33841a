"""What a rule would have told in the last week, where the lab still knows."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import Q
from django.utils import timezone

from lab.labelling.labels.models import Queue
from lab.training.runs import metrics
from lab.training.runs.models import ACTIVE, MetricChunk, Run, Status
from lab.watching.alerts.events import of_interest, queue_of_interest
from lab.watching.alerts.kinds import DUE, FAILED, FINISHED, FLAT, METRIC
from lab.watching.alerts.models import Direction, Rule
from lab.watching.alerts.watching.metrics import drop_nonfinite_points, filter_rule_runs, find_flat_stretch

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


def preview_rule(rule: Rule) -> Preview:
    since = timezone.now() - WEEK
    if rule.kind in (FINISHED, FAILED):
        status = Status.FINISHED if rule.kind == FINISHED else Status.FAILED
        return of_runs(rule, filter_rule_runs(rule).filter(status=status, finished_at__gte=since))
    if rule.kind == METRIC:
        return of_runs(rule, list_trained_runs(rule, since), has_value_beyond_limit)
    if rule.kind == FLAT:
        return of_runs(rule, list_trained_runs(rule, since)[:READ_RUNS], flat_at_the_end)
    if rule.kind == DUE:
        queues = Queue.objects.of(rule.team).filter(due__gte=since, due__lte=timezone.now())
        names = [queue.name for queue in queues if queue_of_interest(rule, queue)]
        return Preview(len(names), names[:EXAMPLES])
    return Preview(None, [])


def list_trained_runs(rule: Rule, since: datetime) -> list[Run]:
    runs = filter_rule_runs(rule).filter(Q(status__in=ACTIVE) | Q(finished_at__gte=since)).order_by("-created_at")
    return list(runs[:MOST_RUNS])


def of_runs(rule: Rule, runs: Iterable[Run], test: Callable[[Rule, Run], bool] | None = None) -> Preview:
    looked = [run for run in runs if of_interest(rule, run)]
    matching = [run for run in looked if test is None or test(rule, run)]
    return Preview(len(matching), [str(run) for run in matching[:EXAMPLES]], len(looked))


def has_value_beyond_limit(rule: Rule, run: Run) -> bool:
    """From the range each chunk keeps, without reading a point."""
    far = Q(hi__gt=rule.number) if rule.direction == Direction.ABOVE else Q(lo__lt=rule.number)
    return MetricChunk.objects.filter(far, run=run, name=rule.metric).exists()


def flat_at_the_end(rule: Rule, run: Run) -> bool:
    series = drop_nonfinite_points(metrics.read_metric_tail(run.pk, rule.metric, rule.steps or 1))
    return series is not None and find_flat_stretch(series, rule.steps or 1, rule.number or 0.0) is not None
