"""From the body of a launch to queued runs, by the lab's own verbs: the same checks as the form, with the paths of the body's fields."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from ninja import Field

from lab.accounts.models import Project, Team
from lab.api.base import Caller, Given
from lab.api.problems import ApiProblem, FieldProblem, invalid, of_spec, refused
from lab.browse.address import MAX_ID
from lab.catalog.catalog import CatalogError, catalog
from lab.runs import launch, references
from lab.runs.models import Run, Status
from lab.runs.placing import Place, beside, usual
from lab.runs.preflight import PreflightError, preflight
from lab.runs.stages import merged
from trainers.spec import FINAL, RunSpec, SpecError

Spec = dict[str, Any]
OUTPUT = "output"


class Launch(Given):
    recipe: str = Field("", max_length=100, description="Name of a recipe; see the list of recipes.", examples=["grpo"])
    overrides: Spec = Field(
        {},
        description="Changes to the recipe: parts of a spec; `stages` holds changes for single stages, in order.",
        examples=[{"training": {"max_steps": 200}, "methods": [{"name": "rs-grpo", "config": {"risk": 4}}]}],
    )
    spec: Spec | None = Field(None, description="Instead of a recipe: a complete spec, such as that of a run.")
    after: UUID | None = Field(None, description="With a spec: the run it goes on from; it starts when that has finished.")
    name: str = Field("", max_length=launch.NAME_LENGTH, examples=["first try"])
    project: int | None = Field(None, description="Id of one of the team's projects.")
    check: bool = Field(True, description="False leaves out the trainers' own check, which takes seconds.")


@dataclass(frozen=True)
class Wish:
    """A recipe with ``changes``, or (``recipe`` empty) one spec; ``place`` is where in the body its fields stand."""

    name: str
    place: str
    recipe: str = ""
    changes: Spec | None = None
    spec: Spec | None = None
    parent: Run | None = None
    cloned_from: Run | None = None
    goes: Place | None = None  # project and queue; None: those of what it comes from


def of_body(team: Team, given: Launch) -> Wish:
    """Raises ApiProblem."""
    goes = place_of(team, given.project) if given.project is not None else None
    if bool(given.recipe) == (given.spec is not None):
        raise invalid("recipe", "give either a recipe or a spec", 'for example {"recipe": "grpo"}')
    if given.recipe:
        if given.after is not None:
            raise invalid("after", "goes with a spec only", "give the recipe policy: {kind: run, run: …} in overrides")
        return Wish(given.name, "overrides", recipe=given.recipe, changes=given.overrides, goes=goes)
    if given.overrides:
        raise invalid("overrides", "goes with a recipe only", "change the spec itself")
    parent = Run.objects.of(team).filter(pk=given.after).first() if given.after else None
    if given.after and parent is None:
        raise invalid("after", "your team has no such run", "give the id of one of its runs")
    spec = {key: value for key, value in (given.spec or {}).items() if key != OUTPUT}
    if parent is not None:
        spec["policy"] = {"kind": "run", "run": str(parent.pk), "checkpoint": FINAL}
    return Wish(given.name, "spec", spec=spec, parent=parent, goes=goes)


def place_of(team: Team, project: int) -> Place:
    """Raises ApiProblem."""
    found = Project.objects.of(team).filter(pk=project, archived_at=None).first() if 0 < project <= MAX_ID else None
    if found is None:
        raise invalid("project", "your team has no such project", "give the id of one of its projects, or leave it out")
    return Place(found, usual(team))


def of_clone(run: Run, overrides: Spec, name: str) -> Wish:
    try:
        spec = merged(references.named(run.team, run.spec), overrides)
    except SpecError as error:
        raise of_spec(error, "overrides") from None
    parent = run.parent if run.parent and "policy" not in overrides else None
    return Wish(name, "overrides", spec={key: value for key, value in spec.items() if key != OUTPUT}, parent=parent, cloned_from=run)


def checked(team: Team, wish: Wish) -> list[FieldProblem]:
    """The warnings of the trainers' check. Raises ApiProblem with everything that would be refused."""
    specs = specs_of(team, wish)
    problems: list[FieldProblem] = []
    warnings: list[FieldProblem] = []
    pending = wish.parent is not None and wish.parent.status != Status.FINISHED
    for number, spec in enumerate(specs):
        try:
            report = preflight(spec.model_dump(mode="json"), policy_pending=number > 0 or pending)
        except PreflightError as error:
            raise ApiProblem("away", f"The check before the launch could not be made: {error}. Send check: false to launch without it.") from None
        stage = f"stages.{number}." if len(specs) > 1 else ""
        problems += [found(wish, stage, one) for one in report.get("problems", [])]
        warnings += [found(wish, stage, one) for one in report.get("warnings", [])]
    if problems:
        raise refused(problems)
    return warnings


def specs_of(team: Team, wish: Wish) -> list[RunSpec]:
    """Of each stage. Raises ApiProblem."""
    try:
        if wish.recipe:
            return launch.planned(team, wish.recipe, wish.changes)
        return [launch.check(team, {**(wish.spec or {}), OUTPUT: launch.PENDING}, parent=wish.parent)]
    except SpecError as error:
        raise at(wish, error) from None


def queue_of(wish: Wish) -> str:
    """The queue its runs would wait in."""
    return (wish.goes or beside(wish.parent, wish.cloned_from)).queue


def found(wish: Wish, stage: str, one: dict[str, Any]) -> FieldProblem:
    return FieldProblem(field=f"{wish.place}.{stage}{one['field']}", message=one["message"], fix=one.get("fix") or "")


def launched(caller: Caller, wish: Wish) -> list[Run]:
    """Raises ApiProblem."""
    try:
        if wish.recipe:
            return launch.launch_recipe(caller.team, caller.user, wish.recipe, wish.changes, wish.name, place=wish.goes)
        parts: dict[str, Any] = {"parent": wish.parent, "cloned_from": wish.cloned_from, "place": wish.goes}
        return [launch.launch(caller.team, caller.user, wish.spec or {}, wish.name, **parts)]
    except SpecError as error:
        raise at(wish, error) from None


def at(wish: Wish, error: SpecError) -> ApiProblem:
    if wish.recipe and [one.field for one in error.problems] == ["recipe"]:
        return of_spec(error)
    return of_spec(error, wish.place)


def known_recipe(name: str) -> Spec:
    """Raises ApiProblem."""
    try:
        return catalog().recipe(name)
    except CatalogError as error:
        raise ApiProblem("missing", str(error)) from None
