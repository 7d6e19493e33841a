"""An ablation before it is launched: its spec, how many runs it makes and how long one takes."""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass
from typing import Any

from django.http import Http404, QueryDict
from django.shortcuts import get_object_or_404

from lab.lib.numbers import parse_whole_number
from lab.teams.accounts.models import Team
from lab.training.ablations.launch import MOST_RUNS, explain_launch_refusal
from lab.training.ablations.spec_checks import problems_of
from lab.training.ablations.variants import Variant, variants_of
from lab.training.catalog.catalog import CatalogError, load_catalog
from lab.training.runs import hold_reasons
from lab.training.runs.launch import PENDING, check_launch_spec
from lab.training.runs.models import ACTIVE, Run, Status
from lab.training.runs.placement import inherit_place
from lab.training.runs.references import restore_reference_names
from lab.training.runs.stack import stack_of
from trainers.contract.spec import Problem

SEEDS = 3  # offered first: the least that gives an interval worth looking at
MOST_SPEC = 200_000  # characters
SHOWN_PROBLEMS = 5

Spec = dict[str, Any]


@dataclass(frozen=True)
class AblationPlan:
    spec: Spec
    source: Run | None
    name: str
    seeds: int
    problems: tuple[str, ...] = ()
    estimates: tuple[Any, ...] = ()  # what launching it would take (lab.training.runs.hold_reasons)
    added: str = ""  # the method that the source's recipe was given for this ablation

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


def read_plan(team: Team, data: QueryDict, spec: Spec | None = None) -> AblationPlan:
    """The plan an address or a form asks for; of ``spec``, where the caller has it. ``add`` stacks one more method on the recipe of a run.
    Raises Http404 for what is not the team's, or is nothing.
    """
    source = find_source_run(team, data.get("from_run", "")) if spec is None else None
    if spec is None:
        spec = restore_reference_names(team, source.spec) if source else given_spec(data.get("spec", ""))
    if spec is None:
        raise Http404("no run or spec to ablate was given")
    added = data.get("add", "") if source else ""
    if added:
        spec = stack_another_method(spec, added)
    seeds = data.get("seeds", str(SEEDS)).strip()
    count = parse_whole_number(seeds) or 0
    usual = usual_name(spec, source, added)
    name = data.get("name", usual).replace("\0", "").strip()[:100] or usual[:100]
    problems = find_plan_problems(team, spec, count)
    return AblationPlan(spec, source, name, count, problems, () if problems else tuple(estimate_launch_cost(team, spec, source, count)), added)


def estimate_launch_cost(team: Team, spec: Spec, source: Run | None, seeds: int) -> list[object]:
    """What launching it would take. Every run counts as one of the full stack: methods change little of the time beside trainer and policy."""
    full, *others = variants_of(spec)
    checked = check_launch_spec(team, {**full.spec(spec, 0), "output": PENDING})
    return hold_reasons.estimate_launch_usage(team, inherit_place(source).queue, [checked], (1 + len(others)) * seeds)


def stack_another_method(spec: Spec, method: str) -> Spec:
    """The spec with the method after those that it stacks, as it is by default; a method that is there already stays as it is. Raises Http404."""
    if method not in load_catalog().methods_by_name:
        raise Http404("no such method")
    if method in stack_of(spec).names:
        return spec
    return {**spec, "methods": [*(spec.get("methods") or ()), {"name": method}]}


def usual_name(spec: Spec, source: Run | None, added: str = "") -> str:
    """What an ablation is called unless somebody says otherwise."""
    if source and added:
        return f"Does {added} help #{source.number} {source.name}"
    return f"Ablation of #{source.number} {source.name}" if source else f"Ablation of {spec.get('recipe', 'a recipe')}"


def find_plan_problems(team: Team, spec: Spec, seeds: int) -> tuple[str, ...]:
    """Everything that keeps the ablation from being launched, so that nobody finds out from its twelfth run."""
    if reason := explain_launch_refusal(spec, seeds):
        return (reason,)
    return tuple(f"{variant}: {problem}" for variant, problem in find_variant_problems(team, spec, seeds)[:SHOWN_PROBLEMS])


def find_variant_problems(team: Team, spec: Spec, seeds: int) -> list[tuple[str, Problem]]:
    """(variant, what is wrong with it)."""
    return [(variant.name, problem) for variant in variants_of(spec) for problem in problems_of(team, variant.spec(spec, seeds - 1))]


def find_source_run(team: Team, key: str) -> Run | None:
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
        recipe = load_catalog().recipe(name)
    except CatalogError:
        return None
    return recipe["minutes"] * 60 if recipe["minutes"] and len(recipe["stages"]) == 1 else None
