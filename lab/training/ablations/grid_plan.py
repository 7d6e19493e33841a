"""A grid before it is launched: the form's inputs, the grid they stand for, and what is wrong with it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from django.http import QueryDict

from lab.lib.numbers import parse_whole_number
from lab.teams.accounts.models import Team, User
from lab.training.ablations.budgets import REACHED, Budget
from lab.training.ablations.factor_text import LevelTextError, parse_levels, write_value
from lab.training.ablations.factors import Factor, count_cells, list_cells
from lab.training.ablations.grid_checks import MOST_FACTORS, find_grid_problems
from lab.training.ablations.grid_preflight import preflight_cells
from lab.training.ablations.models import Ablation
from lab.training.ablations.plan import SEEDS
from lab.training.ablations.starts import Spec, read_start
from lab.training.runs import hold_reasons
from lab.training.runs.launch import PENDING, check_launch_spec
from lab.training.runs.models import Run
from lab.training.runs.placement import inherit_place
from lab.training.runs.preflight import PreflightError
from lab.training.runs.problem_words import format_problem_sentence
from trainers.contract.spec import Problem

MOST_TEXT = 5000  # characters of a factor's levels
LABELS = {"seeds": "Seeds", "budget.kind": "Budget", "budget.value": "Budget", "budget.metric": "Metric", "factors": "Factors", "run": "Run"}


@dataclass(frozen=True)
class FactorInput:
    """One factor of the form as it was filled in; ``error`` is what is wrong with its name or its levels."""

    place: int
    name: str = ""
    levels: str = ""
    error: str = ""

    @property
    def is_empty(self) -> bool:
        return not (self.name or self.levels)


@dataclass(frozen=True)
class GridPlan:
    grid: Ablation
    inputs: tuple[FactorInput, ...]
    problems: tuple[Problem, ...] = ()
    warnings: tuple[str, ...] = ()
    estimates: tuple[Any, ...] = ()  # what launching it would take (lab.training.runs.hold_reasons)

    @property
    def source(self) -> Run | None:
        return self.grid.source

    @property
    def spec_json(self) -> str:
        return json.dumps(self.grid.spec)

    @property
    def cells(self) -> int:
        return count_cells(self.grid.list_factors())

    @property
    def runs(self) -> int:
        return self.cells * self.grid.seeds

    @property
    def cell_names(self) -> list[str]:
        return [cell.name for cell in list_cells(self.grid.list_factors())]

    @property
    def problem_texts(self) -> list[str]:
        """Everything wrong, for the place beside the button."""
        return [f"{name_place(problem.field, self.inputs)}{format_problem_sentence(problem)}" for problem in self.problems]

    @property
    def is_started(self) -> bool:
        """Something was entered, so that problems are worth telling."""
        return not all(line.is_empty for line in self.inputs)


def name_place(field: str, inputs: Sequence[FactorInput]) -> str:
    """What a field is called on the page, before its problem."""
    parts = field.split(".")
    if parts[0] == "factors" and len(parts) > 1:
        place = int(parts[1])
        filled = [line for line in inputs if not line.is_empty]
        return f"{(filled[place].name if place < len(filled) else '') or f'Factor {place + 1}'}: "
    return f"{LABELS.get(field, field)}: "


def read_grid_plan(team: Team, author: User | None, data: QueryDict, spec: Spec | None = None) -> GridPlan | None:
    """The plan that an address or a form asks for; of ``spec``, where the caller has it. None where it says nothing to start from.

    Raises Http404 for what is not the team's, or is nothing.
    """
    source = None
    if spec is None:
        spec, source = read_start(team, data)
    if spec is None:
        return None
    inputs, factors, problems = read_factor_inputs(data)
    usual = name_usual_grid(spec, source)
    name = data.get("name", usual).replace("\0", "").strip()[:100] or usual[:100]
    budget, wrong = read_budget_input(data)
    seeds = parse_whole_number(data.get("seeds", str(SEEDS)).strip(), 1000) or 0
    about: dict[str, Any] = {"factors": [factor.as_json() for factor in factors], "budget": budget.as_json(), "seeds": seeds}
    return GridPlan(Ablation(team=team, author=author, source=source, spec=spec, name=name, **about), inputs, (*problems, *wrong))


def name_usual_grid(spec: Spec, source: Run | None) -> str:
    """What a grid is called unless somebody says otherwise."""
    return f"Grid of #{source.number} {source.name}" if source else f"Grid of {spec.get('recipe', 'a recipe')}"


def read_factor_inputs(data: QueryDict) -> tuple[tuple[FactorInput, ...], list[Factor], list[Problem]]:
    """The form's lines, the factors of those that are filled in, and what no factor can be made of."""
    inputs, factors, problems = [], list[Factor](), list[Problem]()
    for place in range(MOST_FACTORS):
        name, levels = (data.get(f"factor.{place}.{part}", "").replace("\0", "").replace("\r", "") for part in ("name", "levels"))
        line = FactorInput(place, " ".join(name.split())[:100], levels[:MOST_TEXT])
        if not line.is_empty:
            try:
                factors.append(Factor(line.name, parse_levels(line.levels)))
            except LevelTextError as error:
                line = replace(line, error=f"{error}.")
                problems.append(Problem(f"factors.{len(factors) + len(problems)}.levels", line.levels, str(error), given=False))
        inputs.append(line)
    return tuple(inputs), factors, problems


def read_budget_input(data: QueryDict) -> tuple[Budget, list[Problem]]:
    """A kind that is not offered is refused later; a value that is no number is refused here."""
    kind = data.get("budget_kind", "")[:20]
    text = data.get("budget_value", "").strip()[:40]
    if not kind:
        return Budget(), []
    try:
        value = float(text)
    except ValueError:
        return Budget(kind), [Problem("budget.value", text, "must be a number", given=bool(text))]
    metric = data.get("budget_metric", "").replace("\0", "").strip()[:200] if kind == REACHED else ""
    return Budget(kind, value, metric), []


def examine_grid_plan(plan: GridPlan, *, preflight: bool = False) -> GridPlan:
    """The plan with everything that keeps it from being launched, or with what launching it would take. ``preflight``: the trainers look too."""
    problems, warnings = [*plan.problems] or find_grid_problems(plan.grid), list[str]()
    if preflight and not problems:
        try:
            problems, warnings = preflight_cells(plan.grid)
        except PreflightError as error:
            warnings = [f"The pre-launch check failed to run: {error}. The trainer checks again when it starts."]
    estimates = () if problems else tuple(estimate_grid_cost(plan.grid))
    return replace(plan, problems=tuple(problems), warnings=tuple(warnings), estimates=estimates)


def estimate_grid_cost(grid: Ablation) -> list[object]:
    """What launching it would take, trainer by trainer: every cell counts as the first one with its trainer. Raises SpecError."""
    specs = [cell.spec(grid.spec, 0) for cell in grid.list_variants()]
    count = Counter(name_trainer(spec) for spec in specs)
    first = {name_trainer(spec): spec for spec in reversed(specs)}
    queue = inherit_place(grid.source).queue
    checked = {trainer: check_launch_spec(grid.team, {**first[trainer], "output": PENDING}) for trainer in count}
    return [
        estimate
        for trainer in count
        for estimate in hold_reasons.estimate_launch_usage(grid.team, queue, [checked[trainer]], count[trainer] * grid.seeds)
    ]


def name_trainer(spec: Spec) -> str:
    return str(spec["training"]["trainer"])


def list_field_values(spec: Spec) -> list[tuple[str, str]]:
    """(dotted path, value now) of what the recipe says, for the help beside the form."""
    return [
        (path, write_value(value)[:80]) for path, value in walk_fields(spec) if path.partition(".")[0] not in ("recipe", "version", "output", "seed")
    ]


def walk_fields(value: Any, path: str = "") -> Iterable[tuple[str, Any]]:
    """The leaves of a spec with their paths; elements of lists by their place."""
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from walk_fields(inner, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list) and any(isinstance(inner, dict) for inner in value):
        for index, inner in enumerate(value):
            yield from walk_fields(inner, f"{path}.{index}")
    else:
        yield path, value
