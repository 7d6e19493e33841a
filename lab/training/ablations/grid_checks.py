"""Everything wrong with a grid before anything of it is queued. Problems have the fields of the form and the API: ``factors.0.levels``."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace

from lab.training.ablations.budgets import KINDS, REACHED, STEPS, Budget
from lab.training.ablations.factors import JOINED, MAX_STEPS, Cell, Factor, FieldPathError, count_cells, list_cells
from lab.training.ablations.models import Ablation
from lab.training.ablations.spec_checks import problems_of
from lab.training.runs.references import OUTSIDE
from trainers.contract.refusals import find_unclean_values
from trainers.contract.spec import Problem

MOST_FACTORS, MOST_LEVELS, MOST_CELLS, MOST_GRID_RUNS = 3, 12, 48, 120
MOST_CHANGES = 20  # of one level
MOST_STEPS = 10_000_000
NAME_LENGTH, PATH_LENGTH = 60, 200  # of a factor or level, of a dotted path or a metric
SHOWN_PROBLEMS = 10
OWN = {"seed": "seeds are the grid's own", "output": "every run has a folder of its own", "version": "the version of a spec cannot be changed"}


def find_grid_problems(grid: Ablation) -> list[Problem]:
    """``grid`` need not be stored yet."""
    if grid.source is not None and grid.source.outside:
        return [Problem("run", str(grid.source), OUTSIDE, "choose a run of the lab")]
    if unclean := find_unclean_values({"factors": grid.factors, "budget": grid.budget}):
        return unclean[:SHOWN_PROBLEMS]
    factors, budget = grid.list_factors(), grid.read_matched_budget()
    problems = [*find_shape_problems(factors), *find_budget_problems(budget)]
    if not problems and (reason := count_runs_refusal(grid, grid.seeds)):
        problems = [Problem("seeds", grid.seeds, reason.rstrip("."))]
    problems = problems or list(find_overlap_problems(factors, budget))
    return (problems or find_cell_problems(grid))[:SHOWN_PROBLEMS]


def count_runs_refusal(grid: Ablation, seeds: int, already: int = 0) -> str:
    """Why a grid of this size is not launched; empty when it is. ``already`` counts the seeds it has."""
    cells = count_cells(grid.list_factors())
    if cells > MOST_CELLS:
        return f"{cells} cells are too many; a grid has at most {MOST_CELLS}: leave out levels."
    if seeds < 1:
        return "At least one seed is needed."
    total = cells * (already + seeds)
    if total > MOST_GRID_RUNS:
        most = MOST_GRID_RUNS // cells - already
        advice = f"choose at most {most} {'more ' if already else ''}seed{'' if most == 1 else 's'}" if most > 0 else "leave out levels"
        return f"{cells} cells with {already + seeds} seeds are {total} runs; a grid has at most {MOST_GRID_RUNS}: {advice}."
    return ""


def find_shape_problems(factors: Sequence[Factor]) -> Iterator[Problem]:
    """What can be said of the factors without the recipe."""
    if not 1 <= len(factors) <= MOST_FACTORS:
        yield Problem("factors", len(factors), f"a grid has 1 to {MOST_FACTORS} factors")
    elif all(factor.is_reading for factor in factors):
        yield Problem("factors", None, "every factor reads the same runs", "add one that changes them", given=False)
    names = [factor.name.casefold() for factor in factors]
    for index, factor in enumerate(factors):
        at = f"factors.{index}"
        if reason := find_name_fault(factor.name):
            yield Problem(f"{at}.name", factor.name, reason)
        elif names.index(factor.name.casefold()) < index:
            yield Problem(f"{at}.name", factor.name, "two factors have this name", "rename one of them")
        yield from find_level_problems(factor, f"{at}.levels")


def find_name_fault(name: str) -> str:
    if not 0 < len(name) <= NAME_LENGTH:
        return f"must have 1 to {NAME_LENGTH} characters"
    return "" if name == " ".join(name.split()) else "must not have line breaks, or more than one space in a row"


def find_level_problems(factor: Factor, at: str) -> Iterator[Problem]:
    names = [level.name.casefold() for level in factor.levels]
    if not 2 <= len(names) <= MOST_LEVELS:
        yield Problem(at, len(names), f"a factor has 2 to {MOST_LEVELS} levels", "write one a line")
    for index, level in enumerate(factor.levels):
        long = [path for path, _ in level.changes if not 0 < len(path) <= PATH_LENGTH]
        if reason := find_name_fault(level.name):
            yield Problem(at, level.name, f"a level's name {reason}", "write another one before a colon")
        elif JOINED.strip() in level.name:
            yield Problem(at, level.name, f"a level's name must not contain {JOINED.strip()}", "use another character")
        elif names.index(level.name.casefold()) < index:
            yield Problem(at, level.name, "two levels have this name", "rename one of them")
        if long or len(level.metric) > PATH_LENGTH:
            yield Problem(at, level.name, f"a field or metric must have 1 to {PATH_LENGTH} characters")
        if len(level.changes) > MOST_CHANGES:
            yield Problem(at, level.name, f"changes {len(level.changes)} fields; a level changes at most {MOST_CHANGES}")
    if any(level.metric for level in factor.levels) and not factor.is_reading:
        yield Problem(at, factor.name, "some levels read a metric and others change the runs", "use two factors", given=False)


def find_budget_problems(budget: Budget) -> Iterator[Problem]:
    if budget.kind not in KINDS:
        yield Problem("budget.kind", budget.kind, f"must be one of {', '.join(filter(None, KINDS))}")
    elif not math.isfinite(budget.value):
        yield Problem("budget.value", budget.value, "must be a number")
    elif budget.kind == REACHED:
        if not 0 < len(budget.metric) <= PATH_LENGTH:
            yield Problem("budget.metric", budget.metric, "is missing", "name a metric of the runs, for example heldout/accuracy")
    elif budget.kind and not (budget.value >= 1 and float(budget.value).is_integer()):
        yield Problem("budget.value", budget.value, "must be a whole number from 1")
    elif budget.kind == STEPS and budget.value > MOST_STEPS:
        yield Problem("budget.value", budget.value, f"must be at most {MOST_STEPS}")


def find_overlap_problems(factors: Sequence[Factor], budget: Budget) -> Iterator[Problem]:
    """Fields that two factors change, that the grid sets itself, or that no level may change; and more than one factor that is read."""
    owners: dict[str, int] = {}
    for index, factor in enumerate(factors):
        at = f"factors.{index}.levels"
        for path in dict.fromkeys(path for level in factor.levels for path, _ in level.changes):
            if (own := path.partition(".")[0]) in OWN:
                yield Problem(at, path, f"cannot be a factor: {OWN[own]}", given=False)
            if budget.steps and path == MAX_STEPS:
                yield Problem(at, path, "is what the budget sets", "choose another budget, or leave the field out")
            if (other := find_overlap(path, owners, index)) is not None:
                yield Problem(at, path, f"is changed by {factors[other].name} too", "let one factor change it")
            owners.setdefault(path, index)
    if len([factor for factor in factors if factor.is_reading]) > 1:
        yield Problem("factors", None, "two factors read metrics", "keep one of them", given=False)


def find_overlap(path: str, owners: dict[str, int], index: int) -> int | None:
    """Another factor that changes this field, the object it is in, or a field in it."""
    return next((owner for other, owner in owners.items() if owner != index and are_nested(path, other)), None)


def are_nested(path: str, other: str) -> bool:
    """Whether one of two fields lies in the other, or is it."""
    return f"{path}.".startswith(f"{other}.") or f"{other}.".startswith(f"{path}.")


def find_cell_problems(grid: Ablation) -> list[Problem]:
    """What the specs of the cells say of themselves."""
    return merge_cell_problems(grid, [(cell, check_cell(grid, cell)) for cell in list_grid_cells(grid)])


def list_grid_cells(grid: Ablation) -> list[Cell]:
    return list_cells(grid.list_factors(), grid.read_matched_budget().steps)


def check_cell(grid: Ablation, cell: Cell) -> list[Problem]:
    try:
        return problems_of(grid.team, cell.spec(grid.spec, max(0, grid.seeds - 1)))
    except FieldPathError as error:
        return [Problem(error.path, None, error.message, given=False)]


def merge_cell_problems(grid: Ablation, told: Sequence[tuple[Cell, Sequence[Problem]]]) -> list[Problem]:
    """What several cells say alike is one problem, at the factor that it comes from."""
    found: dict[tuple[str, str], list[tuple[Cell, Problem]]] = defaultdict(list)
    for cell, problems in told:
        for problem in problems:
            found[problem.field, problem.message].append((cell, problem))
    return [name_cell_problem(grid, [cell for cell, _ in those], those[0][1], len(told)) for those in found.values()]


def name_cell_problem(grid: Ablation, cells: Sequence[Cell], problem: Problem, total: int) -> Problem:
    """At the factor that changes the field, with the level or the cells that have the problem; at the recipe where no factor does."""
    changing = [(index, factor) for index, factor in enumerate(grid.list_factors()) if not factor.is_reading]
    for place, (index, _) in enumerate(changing):
        levels = list(dict.fromkeys(cell.levels[place].name for cell in cells))
        if any(are_nested(path, problem.field) for cell in cells for path, _ in cell.levels[place].changes):
            about = f"“{levels[0]}”" if len(levels) == 1 else name_cells(cells)
            return replace(problem, field=f"factors.{index}.levels", message=f"{about}: {problem.field}: {problem.message}", given=False)
    if len(cells) == total:
        return replace(problem, field=f"spec.{problem.field}")
    return replace(problem, field="factors", message=f"{name_cells(cells)}: {problem.field}: {problem.message}", given=False)


def name_cells(cells: Sequence[Cell]) -> str:
    first = f"“{cells[0].name}”"
    return first if len(cells) == 1 else f"{first} and {len(cells) - 1} other cell{'' if len(cells) == 2 else 's'}"
