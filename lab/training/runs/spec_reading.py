"""The launched spec for reading: its values by group, what differs from the defaults and from the run it was cloned from."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from lab.training.catalog.catalog import CatalogError, load_catalog
from lab.training.runs.models import Run
from lab.training.runs.stack import stack_of

GROUPS = {
    "base": "Methods",
    "methods": "Methods",
    "policy": "Policy",
    "teacher": "Teacher",
    "lora": "LoRA",
    "task": "Task",
    "rewards": "More rewards",
    "dataset": "Dataset",
    "human": "Human reward",
    "training": "Training",
    "evaluation": "Evaluation",
    "limits": "Limits",
    "telemetry": "Telemetry",
    "resources": "Machine",
}
LOCAL = ("output", "version")  # says where, not what
UNTOLD = ("base", "training.max_steps")  # empty for a run that was trained elsewhere and does not say
MISSING = object()
ABSENT = "not in the recipe"


@dataclass(frozen=True)
class SpecValue:
    """One entry of the spec. ``usual`` is the recipe's value, else the catalogue's default; None is also how "no usual value" reads."""

    path: str
    name: str
    value: Any
    usual: Any
    differs: bool

    @property
    def text(self) -> str:
        return format_spec_value(self.value)

    @property
    def usual_text(self) -> str:
        return self.usual if self.usual is ABSENT else f"default {format_spec_value(self.usual)}"


@dataclass(frozen=True)
class SpecChange:
    """One path whose value is another now; an absent value reads "none"."""

    path: str
    before: str
    after: str


def format_spec_value(value: Any) -> str:
    """A value as it reads in the spec's JSON, text without its quotes."""
    return "none" if value is None else value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def flatten_launched_spec(spec: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Dotted path → value; lists and empty objects are values, but the methods stand one by one under their names, and a base under its own: the
    trainer's default where the spec names none."""
    leaves: dict[str, Any] = {} if prefix or "training" not in spec else {"base": stack_of(spec).base}
    for key, value in spec.items():
        path = f"{prefix}{key}"
        if path == "base":
            leaves |= flatten_launched_spec((value or {}).get("config") or {}, "base.")
        elif path == "methods" and value:
            for choice in value:
                leaves |= flatten_launched_spec({choice["name"]: choice.get("config") or "default parameters"}, "methods.")
        elif isinstance(value, dict) and value:
            leaves |= flatten_launched_spec(value, path + ".")
        else:
            leaves[path] = value
    return leaves


def group_spec_values(spec: dict[str, Any], usual: dict[str, Any]) -> list[tuple[str, list[SpecValue]]]:
    """(title, values) of each part of the spec; parts with something that differs come first, and so do the values that differ."""
    groups: dict[str, list[SpecValue]] = {}
    for path, value in flatten_launched_spec(spec).items():
        if path in LOCAL or (path in UNTOLD and not value):
            continue
        part, _, name = path.partition(".")
        expected = usual.get(path, MISSING)
        if usual and part in ("base", "methods") and expected is MISSING and value != []:
            expected = ABSENT
        differs = expected is not MISSING and expected != value
        title = GROUPS.get(part, "Run") if name or part in ("base", "methods") else "Run"
        groups.setdefault(title, []).append(SpecValue(path, name or part, value, None if expected is MISSING else expected, differs))
    titles = sorted([*dict.fromkeys(GROUPS.values()), "Run"], key=lambda title: not any(value.differs for value in groups.get(title, [])))
    return [(title, sorted(groups[title], key=lambda value: not value.differs)) for title in titles if title in groups]


def diff_launched_specs(before: dict[str, Any], after: dict[str, Any]) -> list[SpecChange]:
    """What one spec has otherwise than another."""
    old, new = flatten_launched_spec(before), flatten_launched_spec(after)
    return [
        SpecChange(path, format_spec_value(old.get(path)), format_spec_value(new.get(path)))
        for path in sorted(old | new)
        if path not in LOCAL and old.get(path) != new.get(path)
    ]


def collect_schema_defaults(schema: dict[str, Any], path: str = "") -> dict[str, Any]:
    """Dotted path → default of a JSON schema of one object."""
    return {f"{path}{name}": part["default"] for name, part in schema.get("properties", {}).items() if "default" in part}


PARTS = {
    "evaluation": "Evaluation",
    "limits": "Limits",
    "telemetry": "Telemetry",
    "resources": "Resources",
    "task": "TaskChoice",
    "lora": "Lora",
    "human": "HumanReward",
}  # part of the spec → its model in the schema


def find_usual_values(run: Run) -> tuple[dict[str, Any], str]:
    """Dotted path → what the value is unless somebody changes it, and why that is not known (else nothing).

    The recipe's value where the recipe says one, else the catalogue's default.
    """
    if run.outside:
        return {}, ""
    try:
        known = load_catalog()
        defaults = collect_schema_defaults(known.schema) | collect_schema_defaults(known.trainer(run.trainer)["schema"], "training.")
        for part, name in PARTS.items():
            if isinstance(run.spec.get(part), dict):
                defaults |= collect_schema_defaults(known.schema["$defs"].get(name, {}), f"{part}.")
        defaults |= collect_schema_defaults(known.policy(run.spec["policy"]["kind"])["schema"], "policy.")
        if isinstance(run.spec.get("teacher"), dict):
            defaults |= collect_schema_defaults(known.policy(run.spec["teacher"]["kind"])["schema"], "teacher.")
        defaults.pop("recipe", None)
        if run.recipe in {recipe["name"] for recipe in known.recipes}:
            defaults |= flatten_launched_spec(recipe_stage(known.recipe(run.recipe), run.trainer))
    except (CatalogError, KeyError) as error:
        return {}, f"What differs from the defaults is not marked: {error}"
    return defaults, ""


def recipe_stage(recipe: dict[str, Any], trainer: str) -> dict[str, Any]:
    """The partial spec of the recipe's stage for this trainer."""
    stages = [stage["spec"] for stage in recipe["stages"] if stage["spec"].get("training", {}).get("trainer") == trainer]
    return dict(stages[0]) if stages else {}
