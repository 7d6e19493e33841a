"""From a selection to conditions on rollouts. Every name comes from ``fields``; what a person wrote is only ever a parameter."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any
from uuid import UUID

from django.db import connection
from django.db.models import Avg, Exists, F, FloatField, Func, OuterRef, Q, QuerySet, Subquery, TextField, Value
from django.db.models.expressions import Combinable, RawSQL
from django.db.models.functions import Cast

from lab.lib.registry import Registry
from lab.rollouts.annotations.models import Comment, Rating, RolloutTag
from lab.rollouts.browse.fields import COMPONENT, parse_rollout_ids
from lab.rollouts.browse.selection import Filter, Selection
from lab.rollouts.browse.words import prompt_matches, rollout_matches
from lab.rollouts.trajectories.models import Rollout
from lab.teams.accounts.models import Team
from lab.training.runs.models import Run

# Flags that rooms further right answer: name → the ids of the team's rollouts that have it. They enter themselves, with a field, when they start.
ELSEWHERE: Registry[Callable[[Team], Combinable]] = Registry("condition")
# Texts that rooms further right understand: name → the ids of the team's rollouts for which the value holds.
VALUED: Registry[Callable[[Team, str], Combinable]] = Registry("condition")
LOOKUPS = {"eq": "exact", "lt": "lt", "le": "lte", "gt": "gt", "ge": "gte"}
LISTED = ("team_id", "number", "name", "status", "rollouts", "last_rollout", "searchable_to")  # of a run, which has forty columns
COLUMNS = {"finish": "finish_reason"}  # where a field is not called what its column is

# The groups of the runs with, or without, spread of reward, read from the index alone; the fence keeps the planner from asking row by row.
SPREAD = """
SELECT unnest(array_agg(id)) FROM trajectories_rollout
WHERE run_id = ANY(%s) AND NOT superseded GROUP BY run_id, step, group_index, phase
HAVING (count(*) > 1 AND min(reward) = max(reward)) IS {truth} OFFSET 0
"""


# Written out, because every page of the browser pays for composing it.
RUNS = f"SELECT {', '.join(('id', *LISTED))} FROM runs_run WHERE team_id = %(team)s AND binned_at IS NULL"  # noqa: S608 constants only


def load_listed_runs(team: Team, rest: str, **given: Any) -> list[Run]:
    """Runs of the team, with LISTED loaded. ``rest``: SQL with further conditions and the order, whose parameters are ``given``."""
    with connection.cursor() as cursor:
        cursor.execute(f"{RUNS} {rest}", {"team": team.pk, **given})
        return [Run.from_db(connection.alias, ("id", *LISTED), row) for row in cursor.fetchall()]


def runs_of(team: Team, selection: Selection) -> list[Run]:
    """The selection's runs, with LISTED loaded, those with the newest rollouts first. Numbers the team does not have are nobody's."""
    chosen = "AND number = ANY(%(numbers)s)" if selection.runs else "AND last_rollout > 0"
    return load_listed_runs(team, f"{chosen} ORDER BY last_rollout DESC, number DESC", numbers=list(selection.runs))


def sort_newest_first(runs: Iterable[Run]) -> list[Run]:
    """Runs with LISTED loaded, in the order of ``runs_of``."""
    return sorted(runs, key=lambda run: (-run.last_rollout, -run.number))


def filter_matching_rollouts(team: Team, selection: Selection) -> QuerySet[Rollout]:
    """The selection's rollouts, unsorted; the regular expression is left to ``regex``, which has a time limit."""
    runs = runs_of(team, selection)
    rollouts, ids = filter_structured_rollouts(team, selection, runs), [run.pk for run in runs]
    return rollouts.filter(pk__in=rollout_matches(selection.words, ids, team.pk if not selection.runs else 0)) if selection.words else rollouts


def filter_structured_rollouts(team: Team, selection: Selection, runs: Sequence[Run]) -> QuerySet[Rollout]:
    """The rollouts of ``runs`` that the filters leave, without the full text."""
    rollouts: QuerySet[Rollout] = Rollout.objects.filter(run=runs[0]) if len(runs) == 1 else Rollout.objects.filter(run__in=runs)
    if not selection.tries:
        rollouts = rollouts.filter(superseded=False)
    for one in selection.filters:
        rollouts = apply_rollout_filter(rollouts, one, team, [run.pk for run in runs])
    return rollouts


def apply_rollout_filter(rollouts: QuerySet[Rollout], one: Filter, team: Team, runs: Sequence[UUID]) -> QuerySet[Rollout]:
    if one.field.startswith(COMPONENT):
        return apply_number_filter(rollouts.alias(asked_component=extract_reward_component(one.field)), "asked_component", one)
    if one.field == "rating":
        return rollouts.filter(pk__in=filter_mean_ratings(one))
    if one.known.kind == "number":
        return apply_number_filter(rollouts, one.field, one)
    if one.known.kind == "choice":
        same = Q(**{COLUMNS.get(one.field, one.field): one.value})
        return rollouts.filter(same if one.operator == "is" else ~same)
    if one.field == "rollout":
        return rollouts.filter(pk__in=parse_rollout_ids(one.value))
    yes = one.value == "yes"
    if one.field == "zero_variance":
        return rollouts.filter(pk__in=RawSQL(SPREAD.format(truth="TRUE" if yes else "NOT TRUE"), [list(runs)]))  # noqa: S611 only one of two words
    if one.field in ELSEWHERE:
        having = Q(pk__in=ELSEWHERE[one.field](team))
        return rollouts.filter(having if yes else ~having)
    if one.field in VALUED:
        having = Q(pk__in=VALUED[one.field](team, one.value))
        return rollouts.filter(having if one.operator == "is" else ~having)
    if one.field == "prompt":
        return rollouts.filter(prompt_id__in=prompt_matches(one.value, team.pk))
    if one.field == "filtered":
        return rollouts.filter(~Q(filtered=""), filtered__icontains=one.value)
    return rollouts.filter(build_exists_condition(one, team) if yes or one.operator == "has" else ~build_exists_condition(one, team))


def build_exists_condition(one: Filter, team: Team) -> Exists:
    """What is said about a rollout elsewhere. Its reason for being dropped, too: only the few that have one are in an index."""
    mine = OuterRef("pk")
    if one.field == "tag":
        return Exists(RolloutTag.objects.filter(rollout_id=mine, tag__team=team, tag__name__iexact=one.value))
    if one.field == "commented":
        return Exists(Comment.objects.of(team).filter(rollout_id=mine, deleted_at=None))
    if one.field == "rated":
        return Exists(Rating.objects.filter(rollout_id=mine))
    assert one.field == "filtered_out", one.field
    return Exists(Rollout.objects.filter(~Q(filtered=""), run_id=OuterRef("run_id"), pk=mine))


def apply_number_filter(rollouts: QuerySet[Rollout], column: str, one: Filter) -> QuerySet[Rollout]:
    value, operator = parse_filter_operand(one)
    return (
        rollouts.exclude(**{column: value}).filter(**{f"{column}__isnull": False})
        if operator == "ne"
        else rollouts.filter(**{f"{column}__{LOOKUPS[operator]}": value})
    )


def parse_filter_operand(one: Filter) -> tuple[float | int, str]:
    value = float(one.value)
    return (int(value) if one.known.whole else value), one.operator


def filter_mean_ratings(one: Filter) -> QuerySet[Any, Any]:
    value, operator = parse_filter_operand(one)
    means = Rating.across_teams.values("rollout_id").annotate(mean=Avg("value"))
    return (means.exclude(mean=value) if operator == "ne" else means.filter(**{f"mean__{LOOKUPS[operator]}": value})).values("rollout_id")


def extract_reward_component(name: str) -> Combinable:
    """One reward function's value. A parameter, never a lookup name: a function may be called anything."""
    key = Value(name.removeprefix(COMPONENT), output_field=TextField())
    return Cast(Func(F("rewards"), key, function="jsonb_extract_path_text", output_field=TextField()), FloatField())


def sort_key(name: str) -> Combinable:
    """What a number field sorts by."""
    if name.startswith(COMPONENT):
        return extract_reward_component(name)
    if name == "rating":
        means = Rating.objects.filter(rollout_id=OuterRef("pk")).order_by().values("rollout_id").annotate(mean=Avg("value"))
        return Subquery(means.values("mean"), output_field=FloatField())
    return F(name)


def compute_filter_range(filters: Sequence[Filter], name: str) -> tuple[float | None, float | None]:
    """From where to where the filters leave a number field; None where it is open."""
    low, high = -math.inf, math.inf
    for one in filters:
        if one.field == name:
            value = float(one.value)
            low = max(low, value) if one.operator in ("ge", "gt", "eq") else low
            high = min(high, value) if one.operator in ("le", "lt", "eq") else high
    return (low if low > -math.inf else None), (high if high < math.inf else None)
