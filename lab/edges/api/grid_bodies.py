"""From the body of a grid to the grid it stands for: the page's rules, with the paths of the body's fields."""

from __future__ import annotations

from typing import Any, Literal
from uuid import UUID

from ninja import Field

from lab.edges.api.ablation_bodies import find_experiment_source
from lab.edges.api.base import RequestBody
from lab.edges.api.problems import ApiProblem, FieldProblem, field_problem, make_validation_problem
from lab.teams.accounts.models import Team, User
from lab.training.ablations.budgets import Budget
from lab.training.ablations.factors import Factor, Level
from lab.training.ablations.grid_checks import MOST_CHANGES, MOST_FACTORS, MOST_GRID_RUNS, MOST_LEVELS, find_grid_problems
from lab.training.ablations.grid_plan import name_usual_grid
from lab.training.ablations.grid_preflight import preflight_cells
from lab.training.ablations.launch import NAME_LENGTH
from lab.training.ablations.models import Ablation
from lab.training.ablations.plan import SEEDS
from lab.training.runs.preflight import PreflightError
from trainers.contract.spec import Problem

LARGEST = 1e15  # of a budget


class LevelIn(RequestBody):
    name: str = Field(description="Name of the level; its runs are tagged with it.")
    changes: dict[str, Any] = Field(
        {},
        max_length=MOST_CHANGES,
        description="Dotted path of a field of the spec → its value; empty keeps the recipe as it is. Another `training.trainer` brings its own "
        "defaults, base and methods.",
        examples=[{"training.learning_rate": 0.001}],
    )
    metric: str = Field("", description="Instead of changes: the metric of the same runs that this level is.", examples=["heldout/accuracy"])


class FactorIn(RequestBody):
    name: str
    levels: list[LevelIn] = Field(max_length=MOST_LEVELS)


class BudgetIn(RequestBody):
    kind: Literal["steps", "tokens", "written", "reached"] = Field(
        description="steps: every run trains for so many. Runs are compared at the last evaluation before so many training `tokens`, or tokens "
        "`written` by the policy; or at the first evaluation at which `metric` has `reached` the value."
    )
    value: float = Field(ge=-LARGEST, le=LARGEST)
    metric: str = Field("", description="For `reached`.", examples=["heldout/accuracy"])


class GridIn(RequestBody):
    run: UUID | None = Field(None, description="The run whose recipe is varied.")
    spec: dict[str, Any] | None = Field(None, description="Instead of a run: a complete spec.")
    name: str = Field("", max_length=NAME_LENGTH)
    factors: list[FactorIn] = Field(max_length=MOST_FACTORS, description="Every combination of their levels is a cell.")
    seeds: int = Field(SEEDS, ge=1, le=MOST_GRID_RUNS, description="Seeds per cell; use at least three for a meaningful interval.")
    budget: BudgetIn | None = Field(None, description="What all cells have used when they are compared; null: each run is read at its end.")
    check: bool = Field(True, description="false skips the trainer's preflight check of every cell.")


def plan_grid(team: Team, author: User | None, given: GridIn) -> Ablation:
    """Not stored yet. Raises ApiProblem with everything that would be refused."""
    spec, source, location = find_experiment_source(team, given)
    if both := list(find_double_levels(given)):
        raise make_validation_problem(both)
    factors = [
        Factor(one.name, tuple(Level(level.name, tuple(level.changes.items()), level.metric) for level in one.levels)) for one in given.factors
    ]
    budget = Budget(given.budget.kind, given.budget.value, given.budget.metric) if given.budget else Budget()
    about: dict[str, Any] = {"factors": [factor.as_json() for factor in factors], "budget": budget.as_json(), "seeds": given.seeds}
    grid = Ablation(team=team, author=author, source=source, spec=spec, name=given.name.strip() or name_usual_grid(spec, source), **about)
    if problems := find_grid_problems(grid):
        raise make_validation_problem(locate_problem(problem, location) for problem in problems)
    if given.check:
        preflight_grid(grid, location)
    return grid


def preflight_grid(grid: Ablation, location: str) -> None:
    """Raises ApiProblem with what the trainers would refuse."""
    try:
        problems, _ = preflight_cells(grid)
    except PreflightError as error:
        raise ApiProblem("away", f"The pre-launch check failed to run: {error}. Send check: false to launch without it.") from None
    if problems:
        raise make_validation_problem(locate_problem(problem, location) for problem in problems)


def find_double_levels(given: GridIn) -> list[FieldProblem]:
    """Levels with changes and a metric."""
    message, fix = "a level either changes the runs or reads a metric of them", "leave out the changes or the metric"
    return [
        FieldProblem(field=f"factors.{index}.levels.{place}.metric", message=message, fix=fix)
        for index, factor in enumerate(given.factors)
        for place, level in enumerate(factor.levels)
        if level.changes and level.metric
    ]


def locate_problem(problem: Problem, location: str) -> FieldProblem:
    """Where in the body a problem stands: what is wrong with the recipe of a run is said at the run."""
    part, _, rest = problem.field.partition(".")
    if part != "spec" or location == "spec":
        return field_problem(problem, problem.field)
    return field_problem(problem, location, f"{rest}: ")
