"""A sweep before it is launched: the form's inputs, the sweep they stand for, and what is wrong with it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from django.http import QueryDict

from lab.lib.numbers import parse_whole_number
from lab.teams.accounts.models import Team, User
from lab.training.ablations.plan import expected_seconds, recipe_seconds
from lab.training.ablations.starts import read_start
from lab.training.runs import hold_reasons
from lab.training.runs.launch import PENDING, check_launch_spec
from lab.training.runs.models import Run
from lab.training.runs.placement import inherit_place
from lab.training.runs.preflight import PreflightError, run_preflight
from lab.training.runs.problem_words import format_problem_sentence, problem_of_report
from lab.training.runs.spec_fields import SpecField
from lab.training.sweeps.checks import MAX_STEPS, find_sweep_problems
from lab.training.sweeps.models import Direction, Sampler, Sweep
from lab.training.sweeps.scores import METRICS
from lab.training.sweeps.space import SEED, Axis, Spec, apply_values, clean_axis_value, format_axis_value, list_sweepable_fields, read_value
from lab.training.sweeps.suggestions import suggest_values
from trainers.contract.hyperparameters import ROLLOUT_TRAINERS
from trainers.contract.spec import Problem

TRIALS, PARALLEL = 20, 2  # offered first
INPUTS = ("values", "low", "high", "log")
MOST_TEXT = 1000  # characters of an input


@dataclass(frozen=True)
class AxisInput:
    """A line of the form: one hyperparameter, what the recipe says of it, and what was entered."""

    key: str
    label: str
    help: str
    bounds: str
    now: str
    is_number: bool
    is_advanced: bool
    entered: dict[str, str]
    errors: dict[str, str]  # input → what is wrong with it, or nothing


@dataclass(frozen=True)
class SweepPlan:
    sweep: Sweep
    inputs: list[AxisInput]
    problems: tuple[Problem, ...] = ()
    warnings: tuple[str, ...] = ()
    estimates: tuple[Any, ...] = ()  # what launching it would take (lab.training.runs.hold_reasons)
    is_examined: bool = False

    @property
    def source(self) -> Run | None:
        return self.sweep.source

    @property
    def spec_json(self) -> str:
        return json.dumps(self.sweep.spec)

    @property
    def runs(self) -> int:
        return self.sweep.planned

    @property
    def seconds(self) -> float | None:
        return expected_seconds(self.source) if self.source else recipe_seconds(str(self.sweep.spec.get("recipe", "")))

    @property
    def errors(self) -> dict[str, str]:
        """Input → what is wrong with it, of the inputs outside the search space."""
        return {problem.field: format_problem_sentence(problem) for problem in self.problems if problem.field in SETTINGS}

    @property
    def problem_texts(self) -> list[str]:
        """Everything wrong, for the place beside the button."""
        labels = {f"space.{line.key}": line.label for line in self.inputs}
        return [f"{name}{format_problem_sentence(problem)}" for problem in self.problems for name in [name_place(problem.field, labels)]]

    @property
    def opens_advanced(self) -> bool:
        """Something was entered in the folded part."""
        return any(line.is_advanced and any(line.entered.values()) for line in self.inputs)


def name_place(field: str, labels: Mapping[str, str]) -> str:
    """What a field is called on the page, before its problem; nothing for the sweep as a whole."""
    place, _, end = field.rpartition(".")
    if place in labels:
        return f"{labels[place]}, {end}: "
    return "" if field == "space" else f"{SETTINGS.get(field, field)}: "


SETTINGS = {
    "sampler": "Sampler",
    "metric": "Ranked by",
    "direction": "Direction",
    "most_runs": "Trials at most",
    "parallel": "In parallel",
    "halving": "Successive halving",
    "seed": "Sampler seed",
}


def read_plan(team: Team, author: User | None, data: QueryDict, spec: Spec | None = None) -> SweepPlan | None:
    """The plan that an address or a form asks for; of ``spec``, where the caller has it. None where it says nothing to start from.

    Raises Http404 for what is not the team's, or is nothing.
    """
    source = None
    if spec is None:
        spec, source = read_start(team, data)
    if spec is None:
        return None
    fields = list_sweepable_fields(spec)
    sweep = Sweep(team=team, author=author, source=source, spec=spec, **read_settings(data, spec, source))
    sweep.space = [axis.as_json() for axis in read_axis_inputs(data, fields)]
    return SweepPlan(sweep, list(list_axis_inputs(spec, fields, data, ())))


def read_settings(data: QueryDict, spec: Spec, source: Run | None) -> dict[str, Any]:
    """What is not a choice of the form is its first; what is no number is -1, for ``find_sweep_problems`` to refuse."""

    def number(name: str, default: int) -> int:
        found = parse_whole_number(data.get(name, str(default)).strip())
        return -1 if found is None else found

    def choice(name: str, offered: list[str]) -> str:
        return data.get(name, "") if data.get(name) in offered else offered[0]

    is_rewarded = isinstance(spec.get("training"), dict) and spec["training"].get("trainer") in ROLLOUT_TRAINERS
    usual = name_usual_sweep(spec, source)
    return {
        "name": data.get("name", usual).replace("\0", "").strip()[:100] or usual[:100],
        "sampler": choice("sampler", Sampler.values),
        "metric": choice("metric", list(METRICS) if is_rewarded else ["heldout"]),
        "direction": choice("direction", Direction.values),
        "most_runs": number("most_runs", TRIALS),
        "parallel": number("parallel", PARALLEL),
        "seed": number("seed", 0),
        "halving": data.get("halving") == "on",
    }


def name_usual_sweep(spec: Spec, source: Run | None) -> str:
    """What a sweep is called unless somebody says otherwise."""
    return f"Sweep of #{source.number} {source.name}" if source else f"Sweep of {spec.get('recipe', 'a recipe')}"


def read_axis_inputs(data: QueryDict, fields: Mapping[str, SpecField]) -> Iterator[Axis]:
    """The hyperparameters for which something was entered."""
    for key, made in fields.items():
        text = {name: data.get(f"space.{key}.{name}", "").replace("\0", "")[:MOST_TEXT].strip() for name in INPUTS}
        values = tuple(clean_axis_value(made, part) for part in text["values"].split(",") if part.strip())
        low, high = (clean_axis_value(made, text[end]) if text[end] else None for end in ("low", "high"))
        if values or low is not None or high is not None:
            yield Axis(key, values, low, high, text["log"] == "on")


def list_axis_inputs(spec: Spec, fields: Mapping[str, SpecField], data: QueryDict, problems: tuple[Problem, ...]) -> Iterator[AxisInput]:
    errors = {problem.field: format_problem_sentence(problem) for problem in reversed(problems)}
    for key, made in fields.items():
        now = read_value(spec, key, made.initial)
        yield AxisInput(
            key=key,
            label=str(made.label),
            help=str(made.help_text),
            bounds=made.bounds or ("true or false" if not hasattr(made, "choices") else ""),
            now="none" if now is None else format_axis_value(now),
            is_number=hasattr(made, "facts") and bool(made.widget.input_type == "number"),
            is_advanced=made.advanced or key == MAX_STEPS,
            entered={name: data.get(f"space.{key}.{name}", "")[:MOST_TEXT] for name in INPUTS},
            errors={name: errors.get(f"space.{key}.{name}", "") for name in INPUTS},
        )


def examine_plan(plan: SweepPlan, data: QueryDict, *, preflight: bool) -> SweepPlan:
    """The plan with everything that keeps it from being launched; ``preflight``: the trainers look at the first trial too."""
    sweep = plan.sweep
    problems, warnings = find_sweep_problems(sweep), list[str]()
    if not problems and preflight:
        problems, warnings = preflight_first_trial(sweep)
    estimates = () if problems else tuple(estimate_launch_cost(sweep))
    inputs = list(list_axis_inputs(sweep.spec, list_sweepable_fields(sweep.spec), data, tuple(problems)))
    return SweepPlan(sweep, inputs, tuple(problems), tuple(warnings), estimates, True)


def first_trial_spec(sweep: Sweep) -> Spec:
    return apply_values(sweep.spec, suggest_values(sweep, []))


def preflight_first_trial(sweep: Sweep) -> tuple[list[Problem], list[str]]:
    """(problems, warnings) of the trainers' check of the first trial; one that does not come to an end is a warning, as for a launch."""
    checked = check_launch_spec(sweep.team, {**first_trial_spec(sweep), "output": PENDING})
    try:
        report = run_preflight(checked.model_dump(mode="json"), queue=inherit_place(sweep.source).queue, owner=f"{sweep.team.pk}")
    except PreflightError as error:
        return [], [f"The pre-launch check failed to run: {error}. The trainer checks again when it starts."]
    problems = [problem_of_report(item) for item in report.get("problems", [])]
    return problems, [f"{item['field']}: {item['message']}." for item in report.get("warnings", [])]


def estimate_launch_cost(sweep: Sweep) -> list[object]:
    """What launching it would take. Every trial counts as the recipe it starts from."""
    spec = sweep.spec if sweep.sampler != Sampler.SEEDS else {**sweep.spec, SEED: 0}
    checked = check_launch_spec(sweep.team, {**spec, "output": PENDING})
    return hold_reasons.estimate_launch_usage(sweep.team, inherit_place(sweep.source).queue, [checked], sweep.planned)
