"""Metrics beyond a number, or without change. A rule looks at each run it concerns when that has new points, and tells of it once."""

from __future__ import annotations

from datetime import datetime, timedelta

import numpy as np
from django.db.models import F, Q, QuerySet
from django.utils import timezone

from lab.alerts.events import of_interest, of_run
from lab.alerts.kinds import ON_METRICS
from lab.alerts.models import Direction, Looked, Rule
from lab.alerts.notifying import tell
from lab.alerts.watching.runs import where
from lab.runs import metrics
from lab.runs.metrics import Series
from lab.runs.models import ACTIVE, Run

RECENT = timedelta(days=2)  # a run that ended earlier was looked at then, or nobody wants to hear of it now
LIGHT = ("spec", "special_tokens", "latest")


def look(since: datetime, now: datetime) -> None:
    for kind in ON_METRICS:
        for rule in Rule.objects.listening(kind):
            for run in changed(rule):
                look_at(rule, run)


def changed(rule: Rule) -> list[Run]:
    """Runs the rule asks for that trained after it was made and have something it has not seen."""
    looked = Looked.objects.filter(rule=rule)
    seen = {one.run_id: one for one in looked}
    runs = narrowed(rule).filter(Q(status__in=ACTIVE) | Q(finished_at__gte=max(rule.since, timezone.now() - RECENT)))
    runs = runs.exclude(pk__in=looked.filter(Q(told=True) | Q(offset=F("run__ingested"))).values("run"))
    found = [run for run in runs if of_interest(rule, run)]
    for run in found:
        run.looked = seen.get(run.pk)  # type: ignore[attr-defined]
    return found


def narrowed(rule: Rule) -> QuerySet[Run]:
    """What of a rule the database can say; ``of_interest`` says the rest."""
    runs = Run.objects.of(rule.team).select_related("team").defer(*LIGHT)
    if rule.run_id is not None:
        runs = runs.filter(pk=rule.run_id)
    if rule.mine:
        runs = runs.filter(created_by=rule.owner_id)
    return runs.filter(recipe=rule.recipe) if rule.recipe else runs


def look_at(rule: Rule, run: Run) -> None:
    offset = run.ingested  # what comes while we read is read again, never missed
    found = flat(rule, run) if rule.steps else beyond(rule, run)
    if found is not None:
        step, value = found
        said = f"{rule.metric} is {value:g} at step {step}"
        key = f"rule:{rule.pk}:{rule.since:%Y%m%d%H%M%S%f}"
        tell(of_run(run, rule.kind, key, f"{run}: {rule.condition}", f"{said}. {where(run)}", rule=rule), [rule])
    Looked.objects.update_or_create(rule=rule, run=run, defaults={"offset": offset, "told": found is not None})


def beyond(rule: Rule, run: Run) -> tuple[int, float] | None:
    """The first new point beyond the number. A run that began before the rule is first judged by its newest point alone."""
    looked: Looked | None = run.looked  # type: ignore[attr-defined]
    after = looked.offset if looked else -1
    one = finite(metrics.read(run.pk, [rule.metric], after=after).get(rule.metric))
    if one is None:
        return None
    if looked is None and run.created_at < rule.since:
        one = Series(one.name, one.steps[-1:], one.values[-1:])
    return first_beyond(one, rule.direction, rule.number or 0.0)


def first_beyond(one: Series, direction: str, number: float) -> tuple[int, float] | None:
    places = np.flatnonzero(one.values > number if direction == Direction.ABOVE else one.values < number)
    return (int(one.steps[places[0]]), float(one.values[places[0]])) if places.size else None


def flat(rule: Rule, run: Run) -> tuple[int, float] | None:
    """The newest point, if all of the last ``steps`` steps lie within the band."""
    one = finite(metrics.tail(run.pk, rule.metric, rule.steps or 1))
    return still(one, rule.steps or 1, rule.number or 0.0) if one is not None else None


def still(one: Series, steps: int, band: float) -> tuple[int, float] | None:
    """Looks at the points of the last ``steps`` steps: they must reach back that far, and differ by no more than ``band``."""
    last = int(one.steps[-1])
    if last - int(one.steps[0]) < steps or len(one) < 3:
        return None
    values = one.values[one.steps >= last - steps]
    return (last, float(values[-1])) if float(values.max() - values.min()) <= band else None


def finite(one: Series | None) -> Series | None:
    if one is None:
        return None
    good = np.isfinite(one.values)
    return Series(one.name, one.steps[good], one.values[good]) if good.any() else None
