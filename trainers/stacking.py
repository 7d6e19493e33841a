"""Whether methods go together and with the rest of a spec, from what the catalogue says about them: no method is imported, so no torch."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from itertools import combinations
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError, create_model

from trainers import refusals
from trainers.hyperparameters import Strict
from trainers.problems import Problem
from trainers.spec import MethodChoice, RunSpec

CATALOG = Path(__file__).with_name("catalog.json")
DEFAULT_BASES = {"grpo": "dapo", "dpo": "dpo", "kto": "kto", "sft": "sft", "reward": "reward-model"}  # of each trainer
TYPES: dict[str, Any] = {"integer": int, "number": float, "boolean": bool, "string": str, "array": list[Any], "object": dict[str, Any], "null": None}
BOUNDS = {"minimum": "ge", "maximum": "le", "exclusiveMinimum": "gt", "exclusiveMaximum": "lt", "minLength": "min_length", "maxLength": "max_length"}
WORDS = {"at least": "at least", "at most": "at most", "equals": "=", "differs from": "other than"}

Entry = dict[str, Any]


@dataclass
class Verdict:
    problems: list[Problem] = field(default_factory=list)
    warnings: list[Problem] = field(default_factory=list)


@cache
def entries() -> dict[str, Entry]:
    """The catalogue's methods by name."""
    return {entry["name"]: entry for entry in json.loads(CATALOG.read_bytes())["methods"]}


def entry_of(name: str) -> Entry | None:
    """A built-in method from the catalogue; one of another package from its own code."""
    if name in entries():
        return entries()[name]
    from trainers.catalog import describe_method
    from trainers.methods import registry

    try:
        return describe_method("installed", registry.get(name))
    except registry.UnknownMethod:
        return None


def base_choice(spec: RunSpec) -> MethodChoice:
    """The base a spec names, or the default one of its trainer."""
    return spec.base or MethodChoice(name=DEFAULT_BASES[spec.training.trainer])


def check(spec: RunSpec) -> Verdict:
    """Everything that keeps the spec's base and methods from being stacked, and what to know about them."""
    verdict = Verdict()
    chosen: list[tuple[str, Entry]] = []
    for where, choice in [("base", base_choice(spec)), *((f"methods.{place}", choice) for place, choice in enumerate(spec.methods))]:
        entry = entry_of(choice.name)
        if entry is None:
            verdict.problems.append(Problem(f"{where}.name", choice.name, "there is no such method", "choose one of the catalogue"))
            continue
        verdict.problems += list(wrong_place(where, entry, spec)) + list(wrong_config(where, choice, entry))
        chosen.append((where, entry))
    for (_, one), (where, other) in combinations(chosen, 2):
        verdict.problems += list(conflict(where, one, other))
    for where, entry in chosen:
        unmet(where, entry, spec, verdict)
    return verdict


def wrong_place(where: str, entry: Entry, spec: RunSpec) -> Iterator[Problem]:
    trainer, name = spec.training.trainer, entry["name"]
    if where == "base":
        if entry["group"] != "bases":
            yield Problem("base.name", name, "is not a base", "stack it under methods")
        elif entry["trainer"] != trainer:
            yield Problem(
                "base.name", name, f"runs on the {entry['trainer']} trainer, not on {trainer}", f"set training.trainer to {entry['trainer']}"
            )
    elif entry["group"] == "bases":
        yield Problem(f"{where}.name", name, "is a base: a recipe has one", "choose it as the base")
    elif trainer not in entry["trains"]:
        on = " or ".join(entry["trains"])
        yield Problem(f"{where}.name", name, f"works on {on}, not on {trainer}", f"set training.trainer to {on}, or remove it")


def conflict(where: str, one: Entry, other: Entry) -> Iterator[Problem]:
    """Why ``other`` cannot be stacked on ``one``."""
    name = other["name"]
    if one["name"] == name:
        yield Problem(f"{where}.name", name, "is in the recipe twice", "remove one")
        return
    for owned in sorted(set(one["owns"]) & set(other["owns"])):
        message = f"both {one['name']} and {name} decide the {owned}; only one method can"
        yield Problem(f"{where}.name", name, message, f"remove {one['name']} or {name}" if one["group"] != "bases" else "choose another base")
    if name in one["excludes"] or one["name"] in other["excludes"]:
        yield Problem(f"{where}.name", name, f"does not go with {one['name']}", f"remove {one['name']} or {name}")


def unmet(where: str, entry: Entry, spec: RunSpec, verdict: Verdict) -> None:
    """Adds what the method needs of the spec and does not find."""
    data = spec.model_dump()
    for need in entry["requires"]:
        paths = [need["field"], *([need["or_field"]] if need["or_field"] else [])]
        values = [value_at(data, path) for path in paths]
        if any(holds(value, need["holds"], need["value"]) for value in values):
            continue
        problem = Problem(
            paths[0], values[0], f"{entry['name']}: {need['why']}", f"{paths[0]} must be {need['holds'].replace('equals', '')} {need['value']}"
        )
        (verdict.problems if need["hard"] else verdict.warnings).append(problem)
    training = data["training"]
    if "log ratio" in entry["owns"] and training["trainer"] == "grpo" and training.get("beta"):  # DPO's beta is another thing
        message = f"{entry['name']} defines its own log ratio, which the KL penalty would see too"
        verdict.problems.append(Problem("training.beta", training["beta"], message, "set it to 0"))
    if "rollout" in entry["owns"] and training.get("use_vllm"):
        message = f"{entry['name']} decides how completions are generated and cannot do that through vLLM"
        verdict.problems.append(Problem("training.use_vllm", True, message, "switch it off"))
    if "reference" in entry["owns"] and spec.lora is not None:
        message = f"{entry['name']} moves the reference policy, which under LoRA is the policy without its adapters"
        verdict.problems.append(Problem("lora", "on", message, "train all weights"))


def value_at(data: Any, path: str) -> Any:
    for key in path.split("."):
        data = data.get(key) if isinstance(data, dict) else None
    return data


def holds(value: Any, how: Literal["at least", "at most", "equals", "differs from"], wanted: Any) -> bool:
    if how == "equals":
        return bool(value == wanted)
    if how == "differs from":
        return bool(value != wanted)
    if value is None:
        return False
    return bool(value >= wanted) if how == "at least" else bool(value <= wanted)


def wrong_config(where: str, choice: MethodChoice, entry: Entry) -> Iterator[Problem]:
    model = config_model(entry["name"]) if entry["name"] in entries() else from_schema(entry["parameters"])
    try:
        model.model_validate(choice.config)
    except ValidationError as error:
        for problem in refusals.problems_of(error, model):
            yield Problem(f"{where}.config.{problem.field}", problem.value, problem.message, problem.fix, problem.given)


@cache
def config_model(name: str) -> type[Strict]:
    return from_schema(entries()[name]["parameters"])


def from_schema(schema: dict[str, Any]) -> type[Strict]:
    """A model that accepts what the JSON schema of flat parameters does."""
    fields: dict[str, Any] = {}
    for name, part in schema.get("properties", {}).items():
        bounds = {ours: part[key] for key, ours in BOUNDS.items() if key in part}
        fields[name] = (type_of(part), Field(part.get("default", ...), description=part.get("description"), **bounds))
    return create_model(schema.get("title", "Config"), __base__=Strict, **fields)


def type_of(part: dict[str, Any]) -> Any:
    if "const" in part:
        return Literal[part["const"]]
    if "enum" in part:
        return Literal[tuple(part["enum"])]
    if "anyOf" in part:
        kinds = [type_of(option) for option in part["anyOf"]]
        found = kinds[0]
        for kind in kinds[1:]:
            found = found | kind
        return found
    return TYPES[part["type"]]
