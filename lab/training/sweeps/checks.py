"""Everything wrong with a sweep before anything of it is queued, in the words of the launch form. Fields are named as the form names them."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from lab.training.ablations.spec_checks import problems_of
from lab.training.runs.launch import PENDING
from lab.training.runs.references import OUTSIDE, resolve_references
from lab.training.runs.spec_fields import BoundedField, IntegerField, SpecField
from lab.training.sweeps.halving import LEAST_STEPS
from lab.training.sweeps.models import Sampler, Sweep
from lab.training.sweeps.space import Axis, Spec, apply_values, list_sweepable_fields, read_axes
from trainers.contract.hyperparameters import ROLLOUT_TRAINERS
from trainers.contract.spec import Problem, SpecError, parse_spec

MOST_RUNS, MOST_PARALLEL, MOST_SEED = 200, 20, 2**31 - 1
MOST_VALUES = 50  # of one axis
MOST_POINTS = 300  # combinations that are checked one by one
SHOWN_PROBLEMS = 10
MAX_STEPS = "training.max_steps"


def find_sweep_problems(sweep: Sweep) -> list[Problem]:
    """``sweep`` need not be stored yet."""
    if sweep.source is not None and sweep.source.outside:
        return [Problem("from_run", str(sweep.source), OUTSIDE, "choose a run of the lab")]
    if problems := problems_of(sweep.team, sweep.spec):
        return problems[:SHOWN_PROBLEMS]
    problems = [*find_number_problems(sweep), *find_metric_problems(sweep), *find_halving_problems(sweep)]
    return [*problems, *find_space_problems(sweep)][:SHOWN_PROBLEMS]


def find_number_problems(sweep: Sweep) -> Iterator[Problem]:
    bounds = (("most_runs", 1, MOST_RUNS), ("parallel", 1, MOST_PARALLEL), ("seed", 0, MOST_SEED))
    for name, low, high in bounds:
        value = getattr(sweep, name)
        if not isinstance(value, int) or not low <= value <= high:
            yield Problem(name, value, f"must be a whole number from {low} to {high}")


def find_metric_problems(sweep: Sweep) -> Iterator[Problem]:
    if sweep.metric == "heldout" and not sweep.spec.get("evaluation", {}).get("prompts", 1):
        yield Problem("metric", sweep.metric, "the recipe evaluates on no held-out prompts", "choose the training reward, or set held-out prompts")
    if sweep.metric == "reward" and sweep.spec["training"]["trainer"] not in ROLLOUT_TRAINERS:
        yield Problem("metric", sweep.metric, "this trainer logs no training reward", "choose the held-out reward")


def find_halving_problems(sweep: Sweep) -> Iterator[Problem]:
    if not sweep.halving:
        return
    spec = parse_resolved(sweep)
    steps, every = spec.training.max_steps, spec.evaluation.every
    if any(axis.key == MAX_STEPS for axis in read_axes(sweep.space)):
        yield Problem("halving", True, "trials of different length cannot be compared at the same steps", "leave steps out of the search space")
    elif steps < LEAST_STEPS:
        yield Problem("halving", True, f"{steps} steps are too few to compare trials on the way", f"use at least {LEAST_STEPS} steps")
    elif sweep.metric == "heldout" and not 0 < every <= (first := sweep.rungs[0]):
        message = f"nothing is evaluated between the start and step {first}, where trials are compared first"
        yield Problem("halving", True, message, f"evaluate every {first} steps or more often, or rank by the training reward")


def find_space_problems(sweep: Sweep) -> list[Problem]:
    axes = read_axes(sweep.space)
    if sweep.sampler == Sampler.SEEDS:
        return (
            [Problem("space", None, "seeds only changes nothing else", "empty the search space, or choose another sampler", given=False)]
            if axes
            else []
        )
    if not axes:
        return [Problem("space", None, "nothing to search", "enter values or a range for at least one hyperparameter", given=False)]
    fields = list_sweepable_fields(sweep.spec)
    shapes = [problem for axis in axes for problem in find_axis_problems(axis, fields.get(axis.key), sweep.sampler)]
    return shapes or find_value_problems(sweep, axes)


def find_axis_problems(axis: Axis, field: SpecField | None, sampler: str) -> Iterator[Problem]:
    """What can be said of one axis without the others."""
    at = f"space.{axis.key}"
    if field is None:
        yield Problem(at, axis.key, "is no hyperparameter of this recipe", "remove it", given=False)
    elif axis.is_range and axis.values:
        yield Problem(f"{at}.values", list(axis.values), "both values and a range are given", "empty one of them", given=False)
    elif axis.is_range:
        yield from find_range_problems(axis, field, at, sampler)
    elif len(axis.values) > MOST_VALUES:
        yield Problem(f"{at}.values", len(axis.values), f"more than {MOST_VALUES} values", "use a range", given=False)
    elif len({repr(value) for value in axis.values}) < len(axis.values):
        yield Problem(f"{at}.values", list(axis.values), "a value is given twice", "remove one of them", given=False)
    else:
        yield from find_bound_problems(axis, field, at)


def find_range_problems(axis: Axis, field: SpecField, at: str, sampler: str) -> Iterator[Problem]:
    missing = [name for name, end in (("low", axis.low), ("high", axis.high)) if end is None]
    if missing:
        yield Problem(f"{at}.{missing[0]}", "", "is empty", "a range has a lowest and a highest value", given=False)
    elif not isinstance(field, BoundedField):
        yield Problem(f"{at}.low", axis.low, "only a number has a range", f"enter values: {field.bounds or 'true, false'}")
    elif sampler == Sampler.GRID:
        yield Problem(f"{at}.low", axis.low, "a grid needs a list of values", "enter values with commas between them, or choose another sampler")
    elif not all(is_number(end) for end in (axis.low, axis.high)):
        name = "high" if is_number(axis.low) else "low"
        yield Problem(f"{at}.{name}", getattr(axis, name), "must be a number")
    elif axis.low >= axis.high:
        yield Problem(f"{at}.high", axis.high, f"must be greater than the lowest value, {axis.low}")
    elif axis.log and axis.low <= 0:
        yield Problem(f"{at}.low", axis.low, "a logarithmic range begins above 0", "use a linear range, or a lowest value above 0")
    else:
        yield from find_bound_problems(axis, field, at)


def find_bound_problems(axis: Axis, field: SpecField, at: str) -> Iterator[Problem]:
    """A method's parameters: the trainers check them when they start, the catalogue says already what they may be."""
    if axis.key.startswith("training."):
        return  # the spec says it itself
    words = field.bounds or ("a number" if isinstance(field, BoundedField) else "true or false")
    for place, value in axis.places:
        if not fits_field(field, value):
            yield Problem(f"{at}.{place}", value, f"must be {words}")


def fits_field(field: SpecField, value: Any) -> bool:
    if not isinstance(field, BoundedField):
        choices = {choice for choice, _ in getattr(field, "choices", ())}
        return value in choices if choices else isinstance(value, bool)
    if not is_number(value) or (isinstance(field, IntegerField) and not isinstance(value, int)):
        return False
    least, most, above, below = (field.widget.attrs.get(name) for name in ("min", "max", "data-above", "data-below"))
    return (
        (least is None or value >= least)
        and (most is None or value <= most)
        and (above is None or value > above)
        and (below is None or value < below)
    )


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def parse_resolved(sweep: Sweep) -> Any:
    """The spec around which is searched, checked."""
    return parse_spec({**resolve_references(sweep.team, sweep.spec), "output": PENDING})


Point = tuple[tuple[str, Any], ...]  # (input, value) of each axis


def find_value_problems(sweep: Sweep, axes: Sequence[Axis]) -> list[Problem]:
    """What a spec with the values says of itself. A value that is refused in some combinations only is told with the others of one of them."""
    spec = resolve_references(sweep.team, sweep.spec)
    seen: dict[tuple[int, str, str], list[bool]] = defaultdict(list)  # (axis, input, value) → whether each point with it is refused
    found: dict[tuple[str, str, str], tuple[Problem, int, Point]] = {}
    for point in list_checked_points(axes):
        problems = check_point(spec, axes, point)
        for index, (place, value) in enumerate(point):
            seen[index, place, repr(value)].append(bool(problems))
        for problem in problems:
            index = next((index for index, axis in enumerate(axes) if axis.key == problem.field), len(axes) - 1)
            found.setdefault((axes[index].key, problem.field, repr(point[index])), (problem, index, point))
    told = []
    for problem, index, point in sorted(found.values(), key=lambda one: one[1]):
        place, value = point[index]
        others = [f"{axis.key} = {other}" for axis, (_, other) in zip(axes, point, strict=True) if axis is not axes[index]]
        about = "" if all(seen[index, place, repr(value)]) or not others else f", with {', '.join(others)}"
        message = problem.message if problem.field == axes[index].key else f"{problem.field} {problem.message}"
        told.append(replace(problem, field=f"space.{axes[index].key}.{place}", value=value, message=message + about))
    return told


def list_checked_points(axes: Sequence[Axis]) -> Iterator[Point]:
    """Every combination of values and ends of ranges; where these are too many, one axis after the other beside the first of the others."""
    places = [axis.places for axis in axes]
    if math.prod(map(len, places)) <= MOST_POINTS:
        return itertools.product(*places)
    first = [one[0] for one in places]
    return ((*first[:index], place, *first[index + 1 :]) for index, one in enumerate(places) for place in one)


def check_point(spec: Spec, axes: Sequence[Axis], point: Point) -> list[Problem]:
    values: Mapping[str, Any] = {axis.key: value for axis, (_, value) in zip(axes, point, strict=True)}
    try:
        parse_spec({**apply_values(spec, values), "output": PENDING})
    except SpecError as error:
        return error.problems
    return []
