"""The trainers' own check of every cell before a grid is launched: unknown tasks, options and parameters, batches that do not fit."""

from __future__ import annotations

from lab.training.ablations.grid_checks import SHOWN_PROBLEMS, list_grid_cells, merge_cell_problems
from lab.training.ablations.models import Ablation
from lab.training.runs.launch import PENDING, check_launch_spec
from lab.training.runs.placement import inherit_place
from lab.training.runs.preflight import run_preflight
from lab.training.runs.problem_words import problem_of_report
from trainers.contract.spec import Problem


def preflight_cells(grid: Ablation) -> tuple[list[Problem], list[str]]:
    """(problems, warnings) of a grid without problems of its own; some 30 ms a cell. Raises PreflightError where a check does not come to an end."""
    queue, told, warnings = inherit_place(grid.source).queue, [], dict[str, None]()
    for cell in list_grid_cells(grid):
        checked = check_launch_spec(grid.team, {**cell.spec(grid.spec, 0), "output": PENDING})
        report = run_preflight(checked.model_dump(mode="json"), queue=queue, owner=f"{grid.team.pk}")
        told.append((cell, [problem_of_report(item) for item in report.get("problems", [])]))
        warnings |= {f"{item['field']}: {item['message']}.": None for item in report.get("warnings", [])}
    return merge_cell_problems(grid, told)[:SHOWN_PROBLEMS], list(warnings)
