"""Checking a launch form before anything is queued: the spec's own rules, then the trainers' preflight of each stage."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from django.conf import settings

from lab.lib.refusals import Refusal
from lab.training.runs import follow_ups, hold_reasons, launch, preflight, references
from lab.training.runs.forms import LaunchForm
from lab.training.runs.models import Run, Status
from lab.training.runs.problem_words import format_problem_sentence, problem_of_report
from lab.training.runs.spec_form import SpecForm
from lab.training.runs.task_forms import TaskForm
from trainers.contract.spec import FINAL, Problem, RunSpec, SpecError, parse_spec
from trainers.contract.suggestions import Remedy, Suggestion


@dataclass(frozen=True)
class Offer:
    """Values that one button puts into inputs (name of the input → text, true and false for a switch)."""

    label: str
    values: dict[str, str | bool]

    @property
    def as_json(self) -> str:
        return json.dumps(self.values)


@dataclass(frozen=True)
class Finding:
    """A problem or a warning with where it is: the stage's title in a chain, the input's name if there is one, and what the form calls it."""

    stage: str
    place: str
    field: str
    text: str
    label: str = ""
    suggestion: str = ""  # a value for the input
    offer: Offer | None = None


@dataclass
class Examination:
    problems: list[Finding] = field(default_factory=list)
    warnings: list[Finding] = field(default_factory=list)
    reports: list[tuple[str, dict[str, Any]]] = field(default_factory=list)  # stage title, preflight report
    estimates: list[object] = field(default_factory=list)  # what launching it would take (lab.training.runs.hold_reasons)
    broken: str = ""  # why the preflight itself did not come to an end

    @property
    def knows_model(self) -> bool:
        return any(report["model"] for _, report in self.reports)

    @property
    def offer(self) -> Offer | None:
        """Everything that is suggested, in one; None where that is one thing. Of two values for an input that of the last warning, which is about
        memory."""
        offered: list[dict[str, str | bool]] = [{item.place: item.suggestion} for item in self.warnings if item.suggestion]
        offered += [item.offer.values for item in self.warnings if item.offer]
        values = {name: value for one in offered for name, value in one.items()}
        return Offer(f"Use all {len(values)} suggested values", values) if len(offered) > 1 else None

    @property
    def ok(self) -> bool:
        return not self.problems


def examine_launch_form(form: LaunchForm) -> Examination:
    """Everything wrong with the form's specs; each problem is also shown at its input."""
    examination = Examination()
    note_problems(form, examination.problems, 0, "", follow_ups.list_following_problems(form))
    examine_place(form, examination)
    queue = "" if examination.problems else form.place.queue  # of a queue that is not the team's nothing is said
    specs: list[RunSpec] = []
    origin: dict[str, Any] | None = None
    for number, spec in enumerate(form.specs()):
        title = form.draft.stages[number][0] if form.draft.is_chain else ""
        blanks = empty_numbers(form, number)
        try:
            checked = checked_spec(form, number, without_blanks(spec, blanks))
        except SpecError as error:
            note_problems(form, examination.problems, number, title, [*blanks, *error.problems])
            continue
        if blanks:
            note_problems(form, examination.problems, number, title, blanks)
            continue
        specs.append(checked)
        if number == 0:
            origin = checked.policy.model_dump(mode="json")
        pending = number > 0 or is_pending(form.parent)
        try:
            asked, owner = checked.model_dump(mode="json"), f"{form.team.pk}"
            report = preflight.run_preflight(asked, policy_pending=pending, origin=origin, queue=queue, owner=owner)
        except preflight.PreflightError as error:
            examination.broken = str(error)
            continue
        examination.reports.append((title, report))
        note_problems(form, examination.problems, number, title, [problem_of_report(item) for item in report["problems"]])
        examination.warnings += [make_finding(form, number, title, problem_of_report(item)) for item in report["warnings"]]
    if examination.ok:
        examination.estimates = hold_reasons.estimate_launch_usage(form.team, form.place.queue, specs)
    return examination


def examine_place(form: LaunchForm, examination: Examination) -> None:
    """Whether the project and the queue can be used, and what would hold the run back there."""
    try:
        queue = form.place.queue
    except Refusal as error:
        note_problems(form, examination.problems, 0, "", [Problem("project", form.values["project"], str(error).rstrip("."))])
        return
    if refusal := hold_reasons.find_queue_refusal(form.team, queue):
        note_problems(
            form, examination.problems, 0, "", [Problem("queue", queue, refusal.rstrip("."), "choose another, or ask an admin of the team")]
        )
    elif reason := hold_reasons.predict_hold_reasons(form.team, queue):
        examination.warnings.append(Finding("", "", "", f"It will wait: {reason} It starts automatically when there is room."))


def checked_spec(form: LaunchForm, number: int, spec: dict[str, Any]) -> RunSpec:
    """The spec as ``launch`` will make it. Raises SpecError."""
    output = str(Path(settings.RUNS_ROOT) / "new")
    if number:
        own = references.resolve_references(form.team, spec)
        return parse_spec({**own, "policy": {"kind": "run", "folder": "the previous stage", "checkpoint": FINAL}, "output": output})
    return launch.check_launch_spec(form.team, {**spec, "output": output}, parent=form.parent)


def is_pending(parent: Run | None) -> bool:
    return parent is not None and parent.status != Status.FINISHED


def empty_numbers(form: LaunchForm, number: int) -> list[Problem]:
    """Inputs that must hold a number and are empty, as problems with the spec's field."""
    stage, used = form.stages[number], form.list_used_parts(form.stages[number])
    parts: list[tuple[str, SpecForm]] = [("training", stage.training), ("evaluation", stage.evaluation), ("limits", used.pop("limits")), ("", form)]
    parts += [*used.items(), *stage.stack.list_parts()]
    missing = [(f"{part}.{name}".lstrip("."), one.fields[name].default_text) for part, one in parts for name in one.list_empty_numbers()]
    return [Problem(path, "", "is empty", f"the default is {default or 0}") for path, default in missing]


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
    target = form.find_input(number, problem.field)
    place = target.html_name if target else ""
    label = target.label if target and not isinstance(target.form, TaskForm) else ""  # the name of a reward alone would say too little
    suggestion = f"{problem.suggestion:g}" if place and isinstance(problem, Suggestion) else ""
    offer = make_offer(form, number, problem) if isinstance(problem, Remedy) else None
    return Finding(title, place, problem.field, format_problem_sentence(problem), label, suggestion, offer)


def make_offer(form: LaunchForm, number: int, remedy: Remedy) -> Offer | None:
    """None where the form has no input for one of the changes."""
    values: dict[str, str | bool] = {}
    for path, value in remedy.changes.items():
        target = form.find_input(number, path)
        if target is None:
            return None
        if path.startswith("lora."):
            values["lora"] = True  # the switch that the adapters' settings are behind
        values[target.html_name] = value if isinstance(value, bool) else f"{value:g}" if isinstance(value, float) else str(value)
    return Offer(remedy.label, values)
