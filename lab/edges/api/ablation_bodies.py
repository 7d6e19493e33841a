"""From the body of an ablation to the spec it takes apart: the page's rules, with the paths of the body's fields."""

from __future__ import annotations

from typing import Any, Protocol
from uuid import UUID

from ninja import Field

from lab.edges.api.base import RequestBody
from lab.edges.api.launch_bodies import OUTPUT, LaunchRequest, preflight_wish
from lab.edges.api.problems import FieldProblem, field_problem, make_invalid_problem, make_validation_problem
from lab.teams.accounts.models import Team
from lab.training.ablations.launch import MOST_RUNS, NAME_LENGTH, explain_launch_refusal
from lab.training.ablations.plan import SEEDS, find_variant_problems
from lab.training.ablations.variants import FULL, variants_of
from lab.training.runs.models import Run
from lab.training.runs.references import restore_reference_names


class AblationIn(RequestBody):
    run: UUID | None = Field(None, description="The run whose recipe is ablated.")
    spec: dict[str, Any] | None = Field(None, description="Instead of a run: a complete spec that stacks methods.")
    name: str = Field("", max_length=NAME_LENGTH)
    check: bool = Field(True, description="false skips the trainer's preflight check of the full stack, which takes a few seconds.")
    seeds: int = Field(SEEDS, ge=1, le=MOST_RUNS, description="Seeds per variant; use at least three for a meaningful interval.")


class ExperimentSource(Protocol):
    """A body that names a run, or holds a spec."""

    run: UUID | None
    spec: dict[str, Any] | None


def find_experiment_source(team: Team, given: ExperimentSource) -> tuple[dict[str, Any], Run | None, str]:
    """The spec, the run it is of, and which field of the body said so. Raises ApiProblem."""
    if (given.run is None) == (given.spec is None):
        raise make_invalid_problem("run", "give either a run or a spec", "the API returns the spec of a run with the run")
    source = Run.objects.of(team).filter(pk=given.run).first() if given.run else None
    if given.run and source is None:
        raise make_invalid_problem("run", "your team has no such run", "give the id of one of its runs")
    if source:
        return restore_reference_names(team, source.spec), source, "run"
    return {key: value for key, value in (given.spec or {}).items() if key != OUTPUT}, None, "spec"


def plan_ablation(team: Team, given: AblationIn) -> tuple[dict[str, Any], Run | None]:
    """The full stack's spec and the run it is from. Raises ApiProblem with everything that would be refused."""
    spec, source, location = find_experiment_source(team, given)
    if reason := explain_launch_refusal(spec, given.seeds):
        raise make_invalid_problem("seeds" if variants_of(spec) else location, reason)
    problems: dict[tuple[str, str], FieldProblem] = {}
    for variant, problem in find_variant_problems(team, spec, given.seeds):
        exact = variant == FULL and source is None  # places in the stack are others without a method
        field, about = (f"{location}.{problem.field}", "") if exact else (location, f"{variant}: {problem.field}: ")
        problems.setdefault((problem.field, problem.message), field_problem(problem, field, about))
    if problems:
        raise make_validation_problem(problems.values())
    if given.check:
        preflight_wish(team, LaunchRequest("", location, spec=variants_of(spec)[0].spec(spec, 0)))
    return spec, source
