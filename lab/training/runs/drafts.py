"""What a launch form starts from: a recipe, built in or saved by the team, a run to clone, or a run to go on from."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from lab.lib.numbers import MAX_INTEGER, parse_whole_number
from lab.teams.accounts.models import Team
from lab.training.catalog.catalog import Catalog, CatalogError
from lab.training.catalog.models import RecipeVersion
from lab.training.runs import references, team_tasks
from lab.training.runs.models import Run
from lab.training.runs.stored_checkpoints import list_steps_there
from trainers.contract.spec import FINAL, SpecError, parse_spec

Spec = dict[str, Any]
CUSTOM = "custom"
WORLD = "world"  # the recipe that trains in any world
OPTIONS, SETTING = "task.options.", ("equals", "at least")  # requirements of methods that say what to set
CONTEXT = 256  # tokens of the built-in policy's, which worlds are made for
NAMED = ("policy", "teacher", "dataset")  # parts of a spec that hold names where a launched one has paths
SHOWN_RUNS = 60  # newest runs offered as policies


@dataclass(frozen=True)
class Draft:
    """``stages``: title and spec of each, without output; ``clone`` is the run they were taken from, ``after`` the one to go on from,
    ``saved`` the version of a recipe of the team's own; ``recipe`` is then the built-in one it was made from."""

    recipe: str
    title: str
    summary: str
    stages: list[tuple[str, Spec]]
    needs: str = "cpu"
    clone: Run | None = None
    after: Run | None = None
    saved: RecipeVersion | None = None

    @property
    def is_chain(self) -> bool:
        return len(self.stages) > 1


def of_recipe(catalog: Catalog, name: str) -> Draft:
    """Raises CatalogError."""
    recipe = catalog.recipe(name)
    stages = [(stage["title"], complete_spec(catalog, stage["spec"])) for stage in recipe["stages"]]
    return Draft(name, recipe["title"], recipe["summary"], stages, recipe["needs"])


def of_world(catalog: Catalog, recipe: str, name: str, methods: Sequence[str] = ()) -> Draft:
    """A recipe with this world as its task, the options of it that ``methods`` ask for, and room for its longest episode. Raises CatalogError."""
    world = next((task for task in catalog.tasks if task["name"] == name and "tools" in task), None)
    if world is None:
        raise CatalogError(f"there is no world {name}")
    task = {"name": name, "difficulty": next(iter(world["difficulties"])), "options": list_wanted_options(catalog, methods)}
    draft = of_recipe(catalog, recipe)
    stages = []
    for title, spec in draft.stages:
        wanted = {"max_completion_length": world["episode_tokens"], "max_length": CONTEXT}
        room = {name: length for name, length in wanted.items() if spec["training"].get(name) is not None}
        stages.append((title, {**spec, "task": {**spec["task"], **task}, "training": {**spec["training"], **room}}))
    return Draft(recipe, draft.title, draft.summary, stages, draft.needs)


def list_wanted_options(catalog: Catalog, methods: Sequence[str]) -> Spec:
    """The options of a world that methods of the catalogue require, or do better with."""
    known = catalog.methods_by_name
    needs = [need for name in methods if name in known for need in known[name]["requires"]]
    return {need["field"].removeprefix(OPTIONS): need["value"] for need in needs if need["field"].startswith(OPTIONS) and need["holds"] in SETTING}


def of_clone(catalog: Catalog, run: Run) -> Draft:
    """The run's spec as launched, with run ids and names where it holds paths."""
    spec = references.restore_reference_names(run.team, run.spec)
    title = catalog.trainer(run.trainer)["title"] if run.trainer in catalog.trainers else run.trainer
    return Draft(run.recipe, f"Clone of #{run.number}", "", [(title, complete_spec(catalog, spec))], clone=run)


def of_saved(catalog: Catalog, version: RecipeVersion) -> Draft:
    stages = [(stage["title"], complete_spec(catalog, stage["spec"])) for stage in version.stages]
    return Draft(version.origin, f"{version.recipe.name}, version {version.number}", version.note, stages, saved=version)


def of_next_stage(catalog: Catalog, name: str, run: Run, checkpoint: str) -> Draft:
    """A recipe's only stage on ``run``'s policy and task. Raises CatalogError."""
    draft = of_recipe(catalog, name)
    if draft.is_chain:
        raise CatalogError(f"{name} is a multi-stage recipe and starts from its own policy")
    title, spec = draft.stages[0]
    number = parse_whole_number(checkpoint, MAX_INTEGER)
    step = FINAL if number is None else number
    spec = {**spec, "policy": {"kind": "run", "run": str(run.pk), "checkpoint": step}}
    task = run.spec.get("task")
    if isinstance(task, dict) and (task.get("file") or task.get("name") in {task["name"] for task in catalog.tasks}):
        spec["task"] = team_tasks.name_task_file(copy.deepcopy(task))
    return Draft(name, draft.title, draft.summary, [(title, spec)], draft.needs, after=run)


def complete_spec(catalog: Catalog, spec: Spec) -> Spec:
    """A spec with every default written out, policy, teacher and dataset as they are. A spec of an older version comes back as it is."""
    given = {key: value for key, value in spec.items() if key not in NAMED}
    given |= {"teacher": {"kind": "tiny"}} if spec.get("teacher") else {}  # which has none of its own here
    try:
        full = parse_spec({**given, "output": "-"}).model_dump(mode="json")
    except SpecError:
        return copy.deepcopy(spec)
    parts = {key: copy.deepcopy(spec[key]) for key in NAMED if spec.get(key) is not None}
    return references.drop_spec_keys(full, "output", "policy", "dataset") | parts


def runs_with_policies(team: Team, also: Run | None = None) -> list[tuple[str, str]]:
    """Choices of the form: ``<run id>:<checkpoint>`` and what it is called, newest first, unfinished runs last; ``also`` even if it is old
    or archived.
    """
    listed = Run.objects.of(team).listed().filter(outside=False)
    runs = list(listed.order_by("-number").defer("spec", "notes").prefetch_related("checkpoints")[:SHOWN_RUNS])
    if also is not None and also not in runs and not also.outside:
        runs.insert(0, also)
    runs.sort(key=lambda run: run.is_open)  # what is there before what will be
    return [choice for run in runs for choice in _list_checkpoint_choices(run)]


def _list_checkpoint_choices(run: Run) -> list[tuple[str, str]]:
    kept = list_steps_there(run, run.checkpoints.all())[::-1]
    choices = [(f"{run.pk}:{step}", f"#{run.number} {run.name}: checkpoint at step {step}") for step in kept]
    if run.status == "finished":
        return [(f"{run.pk}:{FINAL}", f"#{run.number} {run.name}: final policy"), *choices]
    if run.is_open:
        return [(f"{run.pk}:{FINAL}", f"#{run.number} {run.name}: final policy, once it has finished ({run.status})"), *choices]
    return choices
