"""The parts of the launch form: which inputs a stage, a task and the machine have, and the text of each for a draft."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab.training.catalog.catalog import Catalog
from lab.training.runs import composer
from lab.training.runs.composer import Stack, format_field_texts
from lab.training.runs.drafts import Draft, Spec
from lab.training.runs.schema_form import Field, build_schema_fields
from trainers.contract.spec import FINAL

MACHINE = ("seed", "device", "precision")
FROZEN = "dataset.frozen"  # hidden input "<sha256>:<file>": the digest of the file that the form began with


@dataclass(frozen=True)
class Stage:
    """The part of the form that each stage has for itself."""

    number: int
    title: str
    trainer: str
    summary: str
    training: list[Field]
    evaluation: list[Field]
    stack: Stack | None = None

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


def stage_of(catalog: Catalog, number: int, title: str, spec: Spec) -> Stage:
    trainer = catalog.trainer(spec["training"]["trainer"])
    training = build_schema_fields(trainer["schema"], f"stages.{number}.training.")
    evaluation = part_fields(catalog, "Evaluation", f"stages.{number}.evaluation.")
    return Stage(number, title, spec["training"]["trainer"], trainer["summary"], training, evaluation)


def part_fields(catalog: Catalog, part: str, prefix: str) -> list[Field]:
    return build_schema_fields(catalog.schema["$defs"][part], prefix)


def machine_fields(catalog: Catalog) -> list[Field]:
    return build_schema_fields({"properties": {key: catalog.schema["properties"][key] for key in MACHINE}})


def task_fields(task: Mapping[str, Any]) -> tuple[Field, list[Field]]:
    """The inputs of a task: difficulty, and the weight of each reward function."""
    prefix = f"task.{task['name']}."
    names = tuple(task["difficulties"])
    difficulty = Field(f"{prefix}difficulty", "difficulty", "Difficulty", "", "choice", default=names[0], choices=names)
    rewards = [_make_weight_field(f"{prefix}rewards.", reward) for reward in task["rewards"]]
    return difficulty, rewards


def _make_weight_field(prefix: str, reward: Mapping[str, Any]) -> Field:
    name, step = reward["name"], {"step": "any"}
    return Field(f"{prefix}{name}", name, name, reward["summary"], "number", reward["weight"], attributes=step)


def names_in(folder: Path, folders: bool) -> list[str]:
    if not folder.is_dir():
        return []
    return sorted(path.name for path in folder.iterdir() if not path.name.startswith(".") and path.is_dir() == folders)


def build_draft_values(catalog: Catalog, draft: Draft) -> dict[str, str]:
    """The text of every input for a draft; what its specs leave out has the schema's default."""
    first = draft.stages[0][1]
    name = draft.clone.name if draft.clone else draft.saved.recipe.name if draft.saved else ""
    dataset = first.get("dataset") or {}
    values = {"name": name, "dataset": dataset.get("file", ""), FROZEN: frozen_of(dataset)}
    for number, (title, spec) in enumerate(draft.stages):
        stage = stage_of(catalog, number, title, spec)
        for part, fields in (("training", stage.training), ("evaluation", stage.evaluation)):
            values |= format_field_texts(fields, spec.get(part) or {})
        values |= composer.build_stack_values(catalog, number, spec)
    values |= format_field_texts(machine_fields(catalog), first)
    values |= format_field_texts(part_fields(catalog, "Limits", "limits."), first.get("limits") or {})
    values |= {"lora": "on" if first.get("lora") else ""} | format_field_texts(part_fields(catalog, "Lora", "lora."), first.get("lora") or {})
    asked = next((spec["human"] for _, spec in draft.stages if spec.get("human")), None)
    values |= {"human": "on" if asked else ""} | format_field_texts(part_fields(catalog, "HumanReward", "human."), asked or {})
    return values | task_values(catalog, first.get("task") or {}) | policy_values(first.get("policy") or {})


def frozen_of(dataset: Mapping[str, Any]) -> str:
    return f"{dataset['sha256']}:{dataset.get('file', '')}" if dataset.get("sha256") else ""


def task_values(catalog: Catalog, chosen: Mapping[str, Any]) -> dict[str, str]:
    values = {"task": str(chosen.get("name", ""))}
    for task in catalog.tasks:
        difficulty, rewards = task_fields(task)
        own = chosen if task["name"] == chosen.get("name") else {}
        values |= format_field_texts([difficulty], own) | format_field_texts(rewards, own.get("rewards") or {})
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
