"""The launch form: what its inputs show, and the specs they stand for. The specs are checked by ``launch.check`` and the trainers' preflight."""

from __future__ import annotations

import copy
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from django.conf import settings

from lab.accounts.models import Team
from lab.catalog.catalog import Catalog
from lab.runs import drafts, references
from lab.runs.drafts import Draft, Spec
from lab.runs.models import Run
from lab.runs.schema_form import Field, as_text, fields_of, from_text
from trainers.spec import FINAL, Problem

MACHINE = ("seed", "device", "precision")
POLICY_INPUTS = {"run": "policy.run", "checkpoint": "policy.run", "name": "policy.hub", "revision": "policy.revision", "folder": "policy.folder"}


@dataclass(frozen=True)
class Stage:
    """The part of the form that each stage has for itself."""

    number: int
    title: str
    trainer: str
    summary: str
    training: list[Field]
    evaluation: list[Field]

    @property
    def basic(self) -> list[Field]:
        return [made for made in self.training if not made.advanced]

    @property
    def advanced(self) -> list[Field]:
        return [made for made in self.training if made.advanced]


@dataclass(frozen=True)
class TaskOption:
    """A task of the catalogue with its inputs for difficulty and reward weights."""

    data: Mapping[str, Any]
    chosen: bool
    difficulty: Field
    rewards: list[tuple[Mapping[str, Any], Field]]


class LaunchForm:
    """``values``: the text of every input by name, from the browser or else from the draft. ``problems`` are added by ``refuse``."""

    def __init__(self, team: Team, catalog: Catalog, draft: Draft, data: Mapping[str, str] | None = None) -> None:
        self.team, self.catalog, self.draft = team, catalog, draft
        self.initial = values_of(catalog, draft)
        self.values = dict(self.initial if data is None else data)
        self.errors: dict[str, str] = {}
        self.other_errors: list[str] = []

    @cached_property
    def _plain_stages(self) -> list[Stage]:
        return [stage_of(self.catalog, number, title, spec) for number, (title, spec) in enumerate(self.draft.stages)]

    def _bound(self, fields: list[Field]) -> list[Field]:
        return [made.bound(self.values, self.errors) for made in fields]

    @property
    def stages(self) -> list[Stage]:
        return [replace(stage, training=self._bound(stage.training), evaluation=self._bound(stage.evaluation)) for stage in self._plain_stages]

    @property
    def machine(self) -> list[Field]:
        return self._bound(machine_fields(self.catalog))

    @property
    def limits(self) -> list[Field]:
        return self._bound(part_fields(self.catalog, "Limits", "limits."))

    @property
    def lora(self) -> list[Field]:
        return self._bound(part_fields(self.catalog, "Lora", "lora."))

    @property
    def tasks(self) -> list[TaskOption]:
        return [self._task(task) for task in self.catalog.tasks]

    def _task(self, task: Mapping[str, Any]) -> TaskOption:
        difficulty, rewards = task_fields(task)
        chosen = self.values.get("task") == task["name"]
        weights = [(reward, made.bound(self.values, self.errors)) for reward, made in zip(task["rewards"], rewards, strict=True)]
        return TaskOption(task, chosen, difficulty.bound(self.values, self.errors), weights)

    @cached_property
    def run_choices(self) -> list[tuple[str, str]]:
        chosen = self.draft.after or self.parent
        return drafts.runs_with_policies(self.team, chosen)

    @property
    def folder_choices(self) -> list[str]:
        return names_in(Path(settings.POLICIES_ROOT), folders=True)

    @property
    def dataset_choices(self) -> list[str]:
        return [name for name in names_in(references.datasets_of(self.team), folders=False) if name.endswith((".jsonl", ".parquet"))]

    @property
    def name(self) -> str:
        return self.values.get("name", "")

    @property
    def policy_run(self) -> tuple[str, str | int]:
        """The chosen run's id and checkpoint, as written in the input."""
        run, _, checkpoint = self.values.get("policy.run", "").partition(":")
        return run, int(checkpoint) if checkpoint.isascii() and checkpoint.isdigit() else checkpoint or FINAL

    @cached_property
    def parent(self) -> Run | None:
        """The run whose final policy is chosen: the new run is the next stage of its chain."""
        run, checkpoint = self.policy_run
        if self.values.get("policy") != "run" or checkpoint != FINAL:
            return None
        try:
            return Run.objects.of(self.team).filter(pk=uuid.UUID(run)).first()
        except ValueError:
            return None

    def specs(self) -> list[Spec]:
        """One spec a stage, without output. Later stages have no policy: they go on from the stage before."""
        return [self._spec(number, copy.deepcopy(spec)) for number, (_, spec) in enumerate(self.draft.stages)]

    def _spec(self, number: int, spec: Spec) -> Spec:
        stage = self._plain_stages[number]
        spec |= {made.key: from_text(made, self._text(made)) for made in machine_fields(self.catalog)}
        spec["recipe"] = self.draft.recipe
        spec["training"] = {"trainer": stage.trainer} | self._read([made for made in stage.training if not self._is_untouched(made)])
        spec["evaluation"] = self._read(stage.evaluation)
        spec["limits"] = self._read(part_fields(self.catalog, "Limits", "limits."))
        spec["lora"] = self._read(part_fields(self.catalog, "Lora", "lora.")) if self.values.get("lora") else None
        spec["task"] = self._task_spec()
        spec["dataset"] = {"file": self.values["dataset"]} if self.values.get("dataset") and not self.draft.is_chain else None
        if number == 0:
            spec["policy"] = self._policy_spec()
        else:
            spec.pop("policy", None)
        return spec

    def _is_untouched(self, made: Field) -> bool:
        """Left out of the spec, so that a default that follows from other settings (the warm-up of a short run) does follow."""
        return self._text(made) == self.initial.get(made.name) == made.default_text

    def _text(self, made: Field) -> str:
        return self.values.get(made.name, "")

    def _read(self, fields: list[Field]) -> Spec:
        return {made.key: from_text(made, self._text(made)) for made in fields}

    def _task_spec(self) -> Spec:
        name = self.values.get("task", "")
        task = next((task for task in self.catalog.tasks if task["name"] == name), None)
        if task is None:
            return {"name": name}
        difficulty, rewards = task_fields(task)
        weights = {made.key: from_text(made, self._text(made)) for made in rewards if self._text(made) != made.default_text}
        return {"name": name, "difficulty": self._text(difficulty), "rewards": weights}

    def _policy_spec(self) -> Spec:
        kind = self.values.get("policy", "")
        if kind in ("tiny", "tiny-untrained"):
            return {"kind": "tiny", "cold_start": kind == "tiny"}
        if kind == "run":
            run, checkpoint = self.policy_run
            return {"kind": "run", "run": run, "checkpoint": checkpoint}
        if kind == "hub":
            return {"kind": "hub", "name": self.values.get("policy.hub", "").strip(), "revision": self.values.get("policy.revision", "").strip()}
        return {"kind": "folder", "folder": self.values.get("policy.folder", "")} if kind == "folder" else {"kind": kind}

    def refuse(self, number: int, problem: Problem) -> None:
        """Shows a problem with stage ``number`` at its input, or on top of the form when there is none."""
        text = sentence(problem)
        place = self.input_of(number, problem.field)
        if place in self.errors:
            self.errors[place] += f" {text}"
        elif place:
            self.errors[place] = text
        elif text not in self.other_errors:
            self.other_errors.append(f"{problem.field}: {text}" if problem.field else text)

    def input_of(self, number: int, field: str) -> str:
        """The name of the input a spec's field comes from; empty when the form has none."""
        part, _, rest = field.partition(".")
        if part in ("training", "evaluation"):
            name = f"stages.{number}.{field}"
        elif part == "policy":
            inputs = {"path": "policy.folder"} | POLICY_INPUTS
            name = inputs.get(rest, "policy")
            if self.values.get("policy") == "run" and rest == "folder":
                name = "policy.run"
        elif part == "task":
            name = f"task.{self.values.get('task')}.{rest}" if rest and rest != "name" else "task"
        elif part == "dataset":
            name = "dataset"
        else:
            name = field
        return name if name in self.input_names or name in ("policy", "task", "dataset", "lora") else ""

    @cached_property
    def input_names(self) -> frozenset[str]:
        return frozenset(self.initial) | frozenset(("name", *POLICY_INPUTS.values()))


def sentence(problem: Problem) -> str:
    text = problem.message[:1].upper() + problem.message[1:]
    if problem.field.startswith("dataset.") and isinstance(problem.value, str):
        text = f"{problem.value.rpartition('/')[2]}: {problem.message}"  # which line of which file
    return f"{text}: {problem.fix}." if problem.fix else f"{text}."


def stage_of(catalog: Catalog, number: int, title: str, spec: Spec) -> Stage:
    trainer = catalog.trainer(spec["training"]["trainer"])
    training = fields_of(trainer["schema"], f"stages.{number}.training.")
    evaluation = part_fields(catalog, "Evaluation", f"stages.{number}.evaluation.")
    return Stage(number, title, spec["training"]["trainer"], trainer["summary"], training, evaluation)


def part_fields(catalog: Catalog, part: str, prefix: str) -> list[Field]:
    return fields_of(catalog.schema["$defs"][part], prefix)


def machine_fields(catalog: Catalog) -> list[Field]:
    return fields_of({"properties": {key: catalog.schema["properties"][key] for key in MACHINE}})


def task_fields(task: Mapping[str, Any]) -> tuple[Field, list[Field]]:
    """The inputs of a task: difficulty, and the weight of each reward function."""
    prefix = f"task.{task['name']}."
    names = tuple(task["difficulties"])
    difficulty = Field(f"{prefix}difficulty", "difficulty", "Difficulty", "", "choice", default=names[0], choices=names)
    rewards = [_weight(f"{prefix}rewards.", reward) for reward in task["rewards"]]
    return difficulty, rewards


def _weight(prefix: str, reward: Mapping[str, Any]) -> Field:
    name, step = reward["name"], {"step": "any"}
    return Field(f"{prefix}{name}", name, name, reward["summary"], "number", reward["weight"], attributes=step)


def names_in(folder: Path, folders: bool) -> list[str]:
    if not folder.is_dir():
        return []
    return sorted(path.name for path in folder.iterdir() if not path.name.startswith(".") and path.is_dir() == folders)


def values_of(catalog: Catalog, draft: Draft) -> dict[str, str]:
    """The text of every input for a draft; what its specs leave out has the schema's default."""
    first = draft.stages[0][1]
    values = {"name": draft.clone.name if draft.clone else "", "dataset": (first.get("dataset") or {}).get("file", "")}
    for number, (title, spec) in enumerate(draft.stages):
        stage = stage_of(catalog, number, title, spec)
        for part, fields in (("training", stage.training), ("evaluation", stage.evaluation)):
            values |= texts(fields, spec.get(part) or {})
    values |= texts(machine_fields(catalog), first)
    values |= texts(part_fields(catalog, "Limits", "limits."), first.get("limits") or {})
    values |= {"lora": "on" if first.get("lora") else ""} | texts(part_fields(catalog, "Lora", "lora."), first.get("lora") or {})
    return values | task_values(catalog, first.get("task") or {}) | policy_values(first.get("policy") or {})


def texts(fields: list[Field], part: Mapping[str, Any]) -> dict[str, str]:
    return {made.name: as_text(part.get(made.key, made.default)) for made in fields}


def task_values(catalog: Catalog, chosen: Mapping[str, Any]) -> dict[str, str]:
    values = {"task": str(chosen.get("name", ""))}
    for task in catalog.tasks:
        difficulty, rewards = task_fields(task)
        own = chosen if task["name"] == chosen.get("name") else {}
        values |= texts([difficulty], own) | texts(rewards, own.get("rewards") or {})
    return values


def policy_values(policy: Mapping[str, Any]) -> dict[str, str]:
    kind = policy.get("kind", "tiny")
    if kind == "tiny" and not policy.get("cold_start", True):
        kind = "tiny-untrained"
    return {
        "policy": kind,
        "policy.run": f"{policy['run']}:{policy.get('checkpoint', FINAL)}" if policy.get("run") else "",
        "policy.hub": policy.get("name", ""),
        "policy.revision": policy.get("revision", "main"),
        "policy.folder": policy.get("folder", ""),
    }
