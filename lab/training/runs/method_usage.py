"""Which runs used which method, read from their specs. A spec that names no base used the default one of its trainer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from django.db.models import Count, F, Func, JSONField, Max, Q, QuerySet, TextField, Value
from django.db.models.fields.json import KT
from django.db.models.functions import Coalesce

from lab.teams.accounts.models import Team
from lab.training.runs.models import HEAVY, Run
from trainers.contract.stacking import DEFAULT_BASES


def build_method_condition(method: str) -> Q:
    """Runs that stack the method or stand on it."""
    condition = Q(spec__methods__contains=[{"name": method}]) | Q(spec__base__name=method)
    for trainer, base in DEFAULT_BASES.items():
        if base == method:
            condition |= Q(trainer=trainer, base_name="")
    return condition


def with_base(runs: QuerySet[Run]) -> QuerySet[Run]:
    """Adds ``base_name``, the base that the spec names; empty without one. ``build_method_condition`` needs it."""
    return runs.annotate(base_name=Coalesce(KT("spec__base__name"), Value(""), output_field=TextField()))


def count_method_runs(team: Team) -> Counter[str]:
    """How many of the team's runs used each method."""
    return sum_method_counts(count_run_stacks(team))


def count_run_stacks(team: Team, *columns: str) -> Iterable[dict[str, Any]]:
    """One query: a row for each combination there is of trainer, base, methods and ``columns``, with its count ``runs`` and its ``newest`` number."""
    names = Func(F("spec"), Value("$.methods[*].name"), function="jsonb_path_query_array", output_field=JSONField())
    runs = with_base(Run.objects.of(team)).annotate(names=names)
    return runs.values("trainer", "base_name", "names", *columns).order_by().annotate(runs=Count("pk"), newest=Max("number"))


def sum_method_counts(stacks: Iterable[dict[str, Any]]) -> Counter[str]:
    """Rows of ``count_run_stacks`` → how many runs used each method."""
    counts: Counter[str] = Counter()
    for stack in stacks:
        base = stack["base_name"] or DEFAULT_BASES.get(stack["trainer"], "")
        for name in {base, *stack["names"]}:
            counts[name] += stack["runs"]
    return counts


def list_latest_method_runs(team: Team, method: str, limit: int) -> list[Run]:
    """The newest runs that used the method."""
    newest = with_base(Run.objects.of(team).listed()).filter(build_method_condition(method)).order_by("-number")
    return list(newest.defer(*HEAVY)[:limit])
