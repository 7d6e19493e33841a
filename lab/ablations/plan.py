"""An ablation before it is launched: its spec, how many runs it makes and how long one takes."""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass
from typing import Any

from django.http import Http404, QueryDict
from django.shortcuts import get_object_or_404

from lab.ablations.launch import MOST_RUNS, refusal
from lab.ablations.variants import Variant, variants_of
from lab.accounts.models import Team
from lab.catalog.catalog import CatalogError, catalog
from lab.runs import holding
from lab.runs.launch import PENDING, check
from lab.runs.models import ACTIVE, Run, Status
from lab.runs.placing import beside
from lab.runs.references import named
from trainers import stacking
from trainers.spec import Problem, SpecError

SEEDS = 3  # offered first: the least that gives an interval worth looking at
MOST_SPEC = 200_000  # characters
SHOWN_PROBLEMS = 5

Spec = dict[str, Any]


@dataclass(frozen=True)
class Plan:
    spec: Spec
    source: Run | None
    name: str
    seeds: int
    problems: tuple[str, ...] = ()
    estimates: tuple[Any, ...] = ()  # what launching it would take (lab.runs.holding)

    @property
    def variants(self) -> list[Variant]:
        return variants_of(self.spec)

    @property
    def runs(self) -> int:
        return len(self.variants) * self.seeds

    @property
    def most_seeds(self) -> int:
        return MOST_RUNS // max(1, len(self.variants))

    @property
    def seconds(self) -> float | None:
        """Of one run by its own pace or its recipe, where no finished run tells."""
        return expected_seconds(self.source) if self.source else recipe_seconds(str(self.spec.get("recipe", "")))

    @property
    def spec_json(self) -> str:
        return json.dumps(self.spec)


def read_plan(team: Team, data: QueryDict, spec: Spec | None = None) -> Plan:
    """The plan an address or a form asks for; of ``spec``, where the caller has it. Raises Http404 for what is not the team's, or is nothing."""
    source = run_of(team, data.get("from_run", "")) if spec is None else None
    if spec is None:
        spec = named(team, source.spec) if source else given_spec(data.get("spec", ""))
    if spec is None:
        raise Http404("nothing to ablate is named")
    seeds = data.get("seeds", str(SEEDS)).strip()
    count = int(seeds) if seeds.isascii() and seeds.isdigit() and len(seeds) < 5 else 0
    usual = usual_name(spec, source)
    name = data.get("name", usual).replace("\0", "").strip()[:100] or usual[:100]
    found = problems(team, spec, count)
    return Plan(spec, source, name, count, found, () if found else tuple(estimates(team, spec, source, count)))


def estimates(team: Team, spec: Spec, source: Run | None, seeds: int) -> list[object]:
    """What launching it would take. Every run counts as one of the full stack: methods change little of the time beside trainer and policy."""
    full, *others = variants_of(spec)
    checked = check(team, {**full.spec(spec, 0), "output": PENDING})
    return holding.estimates(team, beside(source).queue, [checked], (1 + len(others)) * seeds)


def usual_name(spec: Spec, source: Run | None) -> str:
    """What an ablation is called unless somebody says otherwise."""
    return f"Ablation of #{source.number} {source.name}" if source else f"Ablation of {spec.get('recipe', 'a recipe')}"


def problems(team: Team, spec: Spec, seeds: int) -> tuple[str, ...]:
    """Everything that keeps the ablation from being launched, so that nobody finds out from its twelfth run."""
    if reason := refusal(spec, seeds):
        return (reason,)
    return tuple(f"{variant}: {problem}" for variant, problem in objections(team, spec, seeds)[:SHOWN_PROBLEMS])


def objections(team: Team, spec: Spec, seeds: int) -> list[tuple[str, Problem]]:
    """(variant, what is wrong with it)."""
    return [(variant.name, problem) for variant in variants_of(spec) for problem in problems_of(team, variant.spec(spec, seeds - 1))]


def problems_of(team: Team, spec: Spec) -> list[Problem]:
    try:
        checked = check(team, {**spec, "output": PENDING})
    except SpecError as error:
        return list(error.problems)
    known = stacking.entries()  # of a method of another package only its code, which would load torch, knows what it goes with
    if not all(choice.name in known for choice in (stacking.base_choice(checked), *checked.methods)):
        return []
    return list(stacking.check(checked).problems)


def run_of(team: Team, key: str) -> Run | None:
    if not key:
        return None
    try:
        return get_object_or_404(Run.objects.of(team), pk=uuid.UUID(key))
    except ValueError:
        raise Http404("no such run") from None


def given_spec(text: str) -> Spec | None:
    """A spec that a page carries from one form to the next; it is checked like any other when its runs are launched."""
    try:
        spec = json.loads(text) if 0 < len(text) <= MOST_SPEC else None
    except (ValueError, RecursionError):
        return None
    return spec if isinstance(spec, dict) else None


def expected_seconds(run: Run) -> float | None:
    """How long a run like this one takes: as long as it took, else at the pace it has, else as long as its recipe says."""
    if run.status == Status.FINISHED and run.started_at and run.finished_at:
        return (run.finished_at - run.started_at).total_seconds()
    pace = run.latest.get("step_seconds")
    if pace and run.total_steps and (run.status in ACTIVE or run.step):
        return float(pace) * run.total_steps
    return recipe_seconds(run.recipe)


def recipe_seconds(name: str) -> float | None:
    try:
        recipe = catalog().recipe(name)
    except CatalogError:
        return None
    return recipe["minutes"] * 60 if recipe["minutes"] and len(recipe["stages"]) == 1 else None
