"""Metrics beyond a number, or without change. A rule looks at each run it concerns when that has new points, and tells of it once."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

import numpy as np
from django.db.models import F, Q, QuerySet

from lab.lib.clock import database_now
from lab.training.runs import metrics
from lab.training.runs.metrics import Series
from lab.training.runs.models import ACTIVE, Run
from lab.watching.alerts.events import build_run_event, of_interest
from lab.watching.alerts.kinds import ON_METRICS
from lab.watching.alerts.models import Direction, Looked, Rule
from lab.watching.alerts.notices import dispatch_event
from lab.watching.alerts.watching.runs import format_run_position

RECENT = timedelta(days=2)  # a run that ended earlier was looked at then, or nobody wants to hear of it now
LIGHT = ("spec", "special_tokens", "latest")


def watch_metric_rules(since: datetime, now: datetime) -> None:
    for kind in ON_METRICS:
        for rule in Rule.across_teams.listening(kind):
            for run in list_changed_runs(rule):
                look_at(rule, run)


def list_changed_runs(rule: Rule) -> list[Run]:
    """Runs the rule asks for that trained after it was made and have something it has not seen."""
    looked = Looked.objects.filter(rule=rule)
    seen = {look.run_id: look for look in looked}
    runs = filter_rule_runs(rule).filter(Q(status__in=ACTIVE) | Q(finished_at__gte=max(rule.since, database_now() - RECENT)))
    runs = runs.exclude(pk__in=looked.filter(Q(told=True) | Q(offset=F("run__ingested"))).values("run"))
    changed = [run for run in runs if of_interest(rule, run)]
    for run in changed:
        run.looked = seen.get(run.pk)  # type: ignore[attr-defined]
    return changed


def filter_rule_runs(rule: Rule) -> QuerySet[Run]:
    """What of a rule the database can say; ``of_interest`` says the rest."""
    runs = Run.objects.of(rule.team).select_related("team").defer(*LIGHT)
    if rule.run_id is not None:
        runs = runs.filter(pk=rule.run_id)
    if rule.mine:
        runs = runs.filter(created_by=rule.owner_id)
    return runs.filter(recipe=rule.recipe) if rule.recipe else runs


def look_at(rule: Rule, run: Run) -> None:
    offset = run.ingested  # what comes while we read is read again, never missed
    point = find_flat_metric(rule, run) if rule.steps else find_point_beyond_limit(rule, run)
    if point is not None:
        step, value = point
        sentence = f"{rule.metric} is {value:g} at step {step}"
        key = f"rule:{rule.pk}:{rule.since:%Y%m%d%H%M%S%f}"
        event = build_run_event(run, rule.kind, key, f"{run}: {rule.condition}", f"{sentence}. {format_run_position(run)}", rule=rule)
        dispatch_event(replace(event, step=step, mark=rule.condition), [rule])
    Looked.objects.update_or_create(rule=rule, run=run, defaults={"offset": offset, "told": point is not None})


def find_point_beyond_limit(rule: Rule, run: Run) -> tuple[int, float] | None:
    """The first new point beyond the number. A run that began before the rule is first judged by its newest point alone."""
    looked: Looked | None = run.looked  # type: ignore[attr-defined]
    after = looked.offset if looked else -1
    series = drop_nonfinite_points(metrics.read_metric_series(run.pk, [rule.metric], after=after).get(rule.metric))
    if series is None:
        return None
    if looked is None and run.created_at < rule.since:
        series = Series(series.name, series.steps[-1:], series.values[-1:])
    return first_beyond(series, rule.direction, rule.number or 0.0)


def first_beyond(series: Series, direction: str, number: float) -> tuple[int, float] | None:
    places = np.flatnonzero(series.values > number if direction == Direction.ABOVE else series.values < number)
    return (int(series.steps[places[0]]), float(series.values[places[0]])) if places.size else None


def find_flat_metric(rule: Rule, run: Run) -> tuple[int, float] | None:
    """The newest point, if all of the last ``steps`` steps lie within the band."""
    series = drop_nonfinite_points(metrics.read_metric_tail(run.pk, rule.metric, rule.steps or 1))
    return find_flat_stretch(series, rule.steps or 1, rule.number or 0.0) if series is not None else None


def find_flat_stretch(series: Series, steps: int, band: float) -> tuple[int, float] | None:
    """Looks at the points of the last ``steps`` steps: they must reach back that far, and differ by no more than ``band``."""
    last = int(series.steps[-1])
    if last - int(series.steps[0]) < steps or len(series) < 3:
        return None
    values = series.values[series.steps >= last - steps]
    return (last, float(values[-1])) if float(values.max() - values.min()) <= band else None


def drop_nonfinite_points(series: Series | None) -> Series | None:
    if series is None:
        return None
    good = np.isfinite(series.values)
    return Series(series.name, series.steps[good], series.values[good]) if good.any() else None
