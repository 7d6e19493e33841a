"""From the body of a launch to queued runs, by the lab's own verbs: the same checks as the form, with the paths of the body's fields."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from ninja import Field

from lab.edges.api.base import Caller, RequestBody
from lab.edges.api.problems import ApiProblem, FieldProblem, field_problem, make_invalid_problem, make_validation_problem, of_spec
from lab.teams.accounts.models import Project, Team
from lab.training.catalog.catalog import CatalogError, load_catalog
from lab.training.runs import launch, references
from lab.training.runs.models import NAME_LENGTH, Run, Status
from lab.training.runs.placement import Place, find_usual_queue, inherit_place
from lab.training.runs.preflight import PreflightError, run_preflight
from lab.training.runs.problem_words import problem_of_report
from lab.training.runs.stages import merge_spec_changes
from trainers.contract.spec import FINAL, RunSpec, SpecError

Spec = dict[str, Any]
OUTPUT = "output"


class Launch(RequestBody):
    recipe: str = Field("", max_length=100, description="Name of a recipe; see the list of recipes.", examples=["grpo"])
    overrides: Spec = Field(
        {},
        description="Changes to the recipe: parts of a spec; `stages` contains changes to individual stages, in order.",
        examples=[{"training": {"max_steps": 200}, "methods": [{"name": "rs-grpo", "config": {"risk": 4}}]}],
    )
    spec: Spec | None = Field(None, description="Instead of a recipe: a complete spec, such as that of a run.")
    after: UUID | None = Field(None, description="With a spec: the run to continue from; the new run starts when that one has finished.")
    name: str = Field("", max_length=NAME_LENGTH, examples=["first try"])
    project: int | None = Field(None, description="Id of one of the team's projects.")
    check: bool = Field(True, description="false skips the trainer's preflight check, which takes a few seconds.")


@dataclass(frozen=True)
class LaunchRequest:
    """A recipe with ``changes``, or (``recipe`` empty) one spec; ``location`` is where in the body its fields stand."""

    name: str
    location: str
    recipe: str = ""
    changes: Spec | None = None
    spec: Spec | None = None
    parent: Run | None = None
    cloned_from: Run | None = None
    goes: Place | None = None  # project and queue; None: those of what it comes from


def of_body(team: Team, given: Launch) -> LaunchRequest:
    """Raises ApiProblem."""
    goes = place_of(team, given.project) if given.project is not None else None
    if bool(given.recipe) == (given.spec is not None):
        raise make_invalid_problem("recipe", "give either a recipe or a spec", 'for example {"recipe": "grpo"}')
    if given.recipe:
        if given.after is not None:
            raise make_invalid_problem("after", "can only be used with a spec", "set policy: {kind: run, run: …} in overrides")
        return LaunchRequest(given.name, "overrides", recipe=given.recipe, changes=given.overrides, goes=goes)
    if given.overrides:
        raise make_invalid_problem("overrides", "can only be used with a recipe", "change the spec itself")
    parent = Run.objects.of(team).filter(pk=given.after).first() if given.after else None
    if given.after and parent is None:
        raise make_invalid_problem("after", "your team has no such run", "give the id of one of its runs")
    spec = {key: value for key, value in (given.spec or {}).items() if key != OUTPUT}
    if parent is not None:
        spec["policy"] = {"kind": "run", "run": str(parent.pk), "checkpoint": FINAL}
    return LaunchRequest(given.name, "spec", spec=spec, parent=parent, goes=goes)


def place_of(team: Team, project: int) -> Place:
    """Raises ApiProblem."""
    row = Project.objects.of(team).filter(pk=project, archived_at=None).first()
    if row is None:
        raise make_invalid_problem("project", "your team has no such project", "give the id of one of its projects, or remove it")
    return Place(row, find_usual_queue(team))


def of_clone(run: Run, overrides: Spec, name: str) -> LaunchRequest:
    """Raises ApiProblem."""
    if run.outside:
        raise ApiProblem("conflict", f"{run} {references.OUTSIDE}: the lab cannot launch it again.")
    try:
        spec = merge_spec_changes(references.restore_reference_names(run.team, run.spec), overrides)
    except SpecError as error:
        raise of_spec(error, "overrides") from None
    parent = run.parent if run.parent and "policy" not in overrides else None
    return LaunchRequest(name, "overrides", spec={key: value for key, value in spec.items() if key != OUTPUT}, parent=parent, cloned_from=run)


def preflight_wish(team: Team, wish: LaunchRequest) -> list[FieldProblem]:
    """The warnings of the trainers' check. Raises ApiProblem with everything that would be refused."""
    specs = specs_of(team, wish)
    problems: list[FieldProblem] = []
    warnings: list[FieldProblem] = []
    pending = wish.parent is not None and wish.parent.status != Status.FINISHED
    queue, origin = find_wish_queue(wish), specs[0].policy.model_dump(mode="json")
    for number, spec in enumerate(specs):
        try:
            asked, later = spec.model_dump(mode="json"), number > 0 or pending
            report = run_preflight(asked, policy_pending=later, origin=origin, queue=queue, owner=f"{team.pk}")
        except PreflightError as error:
            raise ApiProblem("away", f"The pre-launch check failed to run: {error}. Send check: false to launch without it.") from None
        stage = f"stages.{number}." if len(specs) > 1 else ""
        problems += [make_report_problem(wish, stage, entry) for entry in report.get("problems", [])]
        warnings += [make_report_problem(wish, stage, entry) for entry in report.get("warnings", [])]
    if problems:
        raise make_validation_problem(problems)
    return warnings


def specs_of(team: Team, wish: LaunchRequest) -> list[RunSpec]:
    """Of each stage. Raises ApiProblem."""
    try:
        if wish.recipe:
            return launch.plan_recipe(team, wish.recipe, wish.changes)
        return [launch.check_launch_spec(team, {**(wish.spec or {}), OUTPUT: launch.PENDING}, parent=wish.parent)]
    except SpecError as error:
        raise problem_from_spec_error(wish, error) from None


def find_wish_queue(wish: LaunchRequest) -> str:
    """The queue its runs would wait in."""
    return (wish.goes or inherit_place(wish.parent, wish.cloned_from)).queue


def make_report_problem(wish: LaunchRequest, stage: str, entry: dict[str, Any]) -> FieldProblem:
    return field_problem(problem_of_report(entry), f"{wish.location}.{stage}{entry['field']}")


def launch_wish(caller: Caller, wish: LaunchRequest) -> list[Run]:
    """Raises ApiProblem."""
    try:
        if wish.recipe:
            return launch.launch_recipe(caller.team, caller.user, wish.recipe, wish.changes, wish.name, place=wish.goes)
        parts: dict[str, Any] = {"parent": wish.parent, "cloned_from": wish.cloned_from, "place": wish.goes}
        return [launch.launch_run(caller.team, caller.user, wish.spec or {}, wish.name, **parts)]
    except SpecError as error:
        raise problem_from_spec_error(wish, error) from None


def problem_from_spec_error(wish: LaunchRequest, error: SpecError) -> ApiProblem:
    if wish.recipe and [problem.field for problem in error.problems] == ["recipe"]:
        return of_spec(error)
    return of_spec(error, wish.location)


def known_recipe(name: str) -> Spec:
    """Raises ApiProblem."""
    try:
        return load_catalog().recipe(name)
    except CatalogError as error:
        raise ApiProblem("missing", str(error)) from None
