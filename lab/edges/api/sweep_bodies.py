"""From the body of a sweep to the sweep it stands for: the page's rules, with the paths of the body's fields."""

from __future__ import annotations

from typing import Any, Literal
from uuid import UUID

from ninja import Field

from lab.edges.api.ablation_bodies import find_experiment_source
from lab.edges.api.base import RequestBody
from lab.edges.api.launch_bodies import LaunchRequest, preflight_wish
from lab.edges.api.problems import field_problem, make_validation_problem
from lab.teams.accounts.models import Team, User
from lab.training.ablations.launch import NAME_LENGTH
from lab.training.sweeps.checks import MOST_PARALLEL, MOST_RUNS, MOST_SEED, MOST_VALUES, find_sweep_problems
from lab.training.sweeps.models import Sweep
from lab.training.sweeps.plan import PARALLEL, TRIALS, first_trial_spec, name_usual_sweep
from lab.training.sweeps.space import Axis, clean_axis_value, list_sweepable_fields
from trainers.contract.spec import Problem

AxisValue = bool | int | float | str
SETTINGS = ("sampler", "metric", "direction", "most_runs", "parallel", "halving", "seed", "space")


class AxisIn(RequestBody):
    values: list[AxisValue] = Field([], max_length=MOST_VALUES, description="Values to try.", examples=[[0.0001, 0.001]])
    low: int | float | None = Field(None, description="Instead of values: the lowest value of a range.")
    high: int | float | None = None
    log: bool = Field(False, description="Draw from the range on a logarithmic scale.")


class SweepIn(RequestBody):
    run: UUID | None = Field(None, description="The run whose recipe is swept.")
    spec: dict[str, Any] | None = Field(None, description="Instead of a run: a complete spec.")
    name: str = Field("", max_length=NAME_LENGTH)
    space: dict[str, AxisIn] = Field(
        {},
        description="Hyperparameter → values or a range: `training.<name>`, `base.<name>` or `methods.<method>.<name>`.",
        examples=[{"training.learning_rate": {"low": 0.00001, "high": 0.001, "log": True}, "training.num_generations": {"values": [4, 8]}}],
    )
    sampler: Literal["tpe", "mutations", "random", "grid", "seeds"] = "tpe"
    metric: Literal["heldout", "reward"] = Field("heldout", description="Last held-out reward, or the mean training reward of the last 10 steps.")
    direction: Literal["maximize", "minimize"] = "maximize"
    most_runs: int = Field(TRIALS, ge=1, le=MOST_RUNS)
    parallel: int = Field(PARALLEL, ge=1, le=MOST_PARALLEL, description="Runs at the same time.")
    halving: bool = Field(False, description="Pause trials that are not in the best third at 20 % and 60 % of the steps.")
    seed: int = Field(0, ge=0, le=MOST_SEED, description="Seed of the sampler.")
    check: bool = Field(True, description="false skips the trainer's preflight check of the first trial, which takes a few seconds.")


def plan_sweep(team: Team, author: User | None, given: SweepIn) -> Sweep:
    """Not stored yet. Raises ApiProblem with everything that would be refused."""
    spec, source, location = find_experiment_source(team, given)
    fields = list_sweepable_fields(spec)
    settings = {name: getattr(given, name) for name in SETTINGS if name != "space"}
    sweep = Sweep(team=team, author=author, source=source, spec=spec, name=given.name.strip() or name_usual_sweep(spec, source), **settings)
    for key, axis in given.space.items():
        made = fields.get(key)
        values, low, high = axis.values, axis.low, axis.high
        if made is not None:
            values = [clean_axis_value(made, value) for value in values]
            low, high = (None if end is None else clean_axis_value(made, end) for end in (low, high))
        sweep.space.append(Axis(key, tuple(values), low, high, axis.log).as_json())
    if problems := find_sweep_problems(sweep):
        raise make_validation_problem(field_problem(problem, name_body_field(problem, location)) for problem in problems)
    if given.check:
        preflight_wish(team, LaunchRequest("", location, spec=first_trial_spec(sweep)))
    return sweep


def name_body_field(problem: Problem, location: str) -> str:
    """Where in the body a problem stands."""
    if problem.field == "from_run":
        return "run"
    return problem.field if problem.field.split(".")[0] in SETTINGS else location if location == "run" else f"{location}.{problem.field}"
