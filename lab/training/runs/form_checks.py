"""Checking a launch form before anything is queued: the spec's own rules, then the trainers' preflight of each stage."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from django.conf import settings

from lab.lib.refusals import Refusal
from lab.training.runs import composer, follow_ups, hold_reasons, launch, preflight
from lab.training.runs.forms import LaunchForm
from lab.training.runs.models import Run, Status
from lab.training.runs.problem_words import format_problem_sentence, problem_of_report
from trainers.contract.spec import FINAL, Problem, RunSpec, SpecError, parse_spec

LABELS = {  # inputs that are no parameters of a schema
    "name": "Name",
    "queue": "Queue",
    "project": "Project",
    "policy": "Policy",
    "policy.hub": "Hub id",
    "policy.revision": "Revision",
    "policy.folder": "Folder",
    "policy.run": "Run and checkpoint",
    "task": "Task",
    "dataset": "Data",
    "lora": "LoRA adapters",
    "human": "Human reward",
}


@dataclass(frozen=True)
class Finding:
    """A problem or a warning with where it is: the stage's title in a chain, the input's name if there is one, and what the form calls it."""

    stage: str
    place: str
    field: str
    text: str
    label: str = ""


@dataclass
class Examination:
    problems: list[Finding] = field(default_factory=list)
    warnings: list[Finding] = field(default_factory=list)
    reports: list[tuple[str, dict[str, Any]]] = field(default_factory=list)  # stage title, preflight report
    estimates: list[object] = field(default_factory=list)  # what launching it would take (lab.training.runs.hold_reasons)
    broken: str = ""  # why the preflight itself did not come to an end

    @property
    def ok(self) -> bool:
        return not self.problems


def examine_launch_form(form: LaunchForm) -> Examination:
    """Everything wrong with the form's specs; each problem is also shown at its input."""
    found = Examination()
    note_problems(form, found.problems, 0, "", follow_ups.list_following_problems(form))
    examine_place(form, found)
    specs: list[RunSpec] = []
    for number, spec in enumerate(form.specs()):
        title = form.draft.stages[number][0] if form.draft.is_chain else ""
        blanks = empty_numbers(form, number)
        try:
            checked = checked_spec(form, number, without_blanks(spec, blanks))
        except SpecError as error:
            note_problems(form, found.problems, number, title, [*blanks, *error.problems])
            continue
        if blanks:
            note_problems(form, found.problems, number, title, blanks)
            continue
        specs.append(checked)
        pending = number > 0 or is_pending(form.parent)
        try:
            report = preflight.run_preflight(checked.model_dump(mode="json"), policy_pending=pending)
        except preflight.PreflightError as error:
            found.broken = str(error)
            continue
        found.reports.append((title, report))
        note_problems(form, found.problems, number, title, [problem_of_report(item) for item in report["problems"]])
        found.warnings += [make_finding(form, number, title, problem_of_report(item)) for item in report["warnings"]]
    if found.ok:
        found.estimates = hold_reasons.estimate_launch_usage(form.team, form.place.queue, specs)
    return found


def examine_place(form: LaunchForm, found: Examination) -> None:
    """Whether the project and the queue can be used, and what would hold the run back there."""
    try:
        queue = form.place.queue
    except Refusal as error:
        note_problems(form, found.problems, 0, "", [Problem("project", form.values.get("project"), str(error).rstrip("."))])
        return
    if refusal := hold_reasons.find_queue_refusal(form.team, queue):
        note_problems(form, found.problems, 0, "", [Problem("queue", queue, refusal.rstrip("."), "choose another, or ask an admin of the team")])
    elif reason := hold_reasons.predict_hold_reasons(form.team, queue):
        found.warnings.append(Finding("", "", "", f"It will wait: {reason} It starts automatically when there is room."))


def checked_spec(form: LaunchForm, number: int, spec: dict[str, Any]) -> RunSpec:
    """The spec as ``launch`` will make it. Raises SpecError."""
    output = str(Path(settings.RUNS_ROOT) / "new")
    if number:
        spec = {**spec, "policy": {"kind": "run", "folder": "the previous stage", "checkpoint": FINAL}, "output": output}
        return parse_spec({key: value for key, value in spec.items() if key != "dataset"})
    return launch.check_launch_spec(form.team, {**spec, "output": output}, parent=form.parent)


def is_pending(parent: Run | None) -> bool:
    return parent is not None and parent.status != Status.FINISHED


def empty_numbers(form: LaunchForm, number: int) -> list[Problem]:
    """Inputs that must hold something and are empty, as problems with the spec's field."""
    stage = form.stages[number]
    named = [("training", stage.training), ("evaluation", stage.evaluation), ("limits", form.limits), ("", form.machine)]
    if form.values.get("lora"):
        named.append(("lora", form.lora))
    if form.values.get("human") and stage.trainer == "grpo":
        named.append(("human", form.human))
    needed = [(part, made) for part, fields in named for made in fields if made.kind in ("integer", "number") and not made.optional]
    named_one_by_one = composer.number_fields(form.catalog, number, stage.trainer, form.values)
    needed += [(part, made) for part, made in named_one_by_one if made.kind in ("integer", "number") and not made.optional]
    missing = [(part, made) for part, made in needed if not made.value.strip()]
    return [Problem(f"{part}.{made.key}".lstrip("."), "", "is empty", f"the default is {made.default_text or 0}") for part, made in missing]


def without_blanks(spec: dict[str, Any], blanks: list[Problem]) -> dict[str, Any]:
    """The spec without the empty fields, so that only what was written is refused."""
    spec = dict(spec)
    for problem in blanks:
        part, _, key = problem.field.rpartition(".")
        if part in spec:
            spec[part] = {name: value for name, value in spec[part].items() if name != key}
        elif not part:
            spec.pop(key)
    return spec


def note_problems(form: LaunchForm, into: list[Finding], number: int, title: str, problems: list[Problem]) -> None:
    """A setting the stages share is refused once, though every stage has it."""
    for problem in problems:
        seen = make_finding(form, number, title, problem)
        if any((other.place, other.field, other.text) == (seen.place, seen.field, seen.text) for other in into):
            continue
        form.refuse(number, problem)
        into.append(seen)


def make_finding(form: LaunchForm, number: int, title: str, problem: Problem) -> Finding:
    place = form.input_of(number, problem.field)
    return Finding(title, place, problem.field, format_problem_sentence(problem), label_of(form, number, place))


def label_of(form: LaunchForm, number: int, place: str) -> str:
    """What the form calls an input; of a method's card its name. Empty where the form has no label for it."""
    stage = form.stages[number]
    inputs = [*stage.training, *stage.evaluation, *form.limits, *form.machine, *form.lora, *form.human]
    inputs += [made for _, made in composer.number_fields(form.catalog, number, stage.trainer, form.values)]
    labels = {made.name: made.label for made in inputs} | LABELS
    return labels.get(place) or place.partition(".method.")[2]
