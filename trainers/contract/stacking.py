"""Whether methods go together and with the rest of a spec, from what the catalogue says about them: no method is imported, so no torch."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal

from pydantic import Field, ValidationError, create_model

from trainers.contract import refusals, stack_conflicts
from trainers.contract.hyperparameters import TRANSFORMERS, Strict
from trainers.contract.problems import Problem
from trainers.contract.spec import NO_SHARDING, MethodChoice, RunSpec
from trainers.contract.stack_conflicts import Chosen
from trainers.contract.stack_order import in_order

DEFAULT_BASES = {
    "grpo": "dapo",
    "rloo": "rloo-trl",
    "dpo": "dpo",
    "kto": "kto",
    "orpo": "orpo",
    "cpo": "cpo",
    "online-dpo": "online-dpo",
    "gkd": "gkd",
    "sft": "sft",
    "reward": "reward-model",
    "procedure": "procedure",
}  # of each trainer
TYPES: dict[str, Any] = {"integer": int, "number": float, "boolean": bool, "string": str, "array": list[Any], "object": dict[str, Any], "null": None}
WHOLE_WEIGHTS = ("gradients", "reference")  # hooks that are given the parameters themselves
BOUNDS = {"minimum": "ge", "maximum": "le", "exclusiveMinimum": "gt", "exclusiveMaximum": "lt", "minLength": "min_length", "maxLength": "max_length"}
WORDS = {"at least": "at least", "at most": "at most", "equals": "=", "differs from": "other than"}

Entry = dict[str, Any]


@dataclass
class Verdict:
    problems: list[Problem] = field(default_factory=list)
    warnings: list[Problem] = field(default_factory=list)


def base_choice(spec: RunSpec) -> MethodChoice:
    """The base a spec names, or the default one of its trainer."""
    return spec.base or MethodChoice(name=DEFAULT_BASES[spec.training.trainer])


def check_stack(spec: RunSpec, entries: Mapping[str, Entry]) -> Verdict:
    """Everything that keeps the spec's base and methods from being stacked, and what to know about them.

    ``entries``: the catalogue's methods by name; what is not among them is no method.
    """
    verdict = Verdict()
    chosen: list[Chosen] = []
    for where, choice in [("base", base_choice(spec)), *((f"methods.{place}", choice) for place, choice in enumerate(spec.methods))]:
        entry = entries.get(choice.name)
        if entry is None:
            verdict.problems.append(Problem(f"{where}.name", choice.name, "there is no such method", "choose one from the catalogue"))
            continue
        verdict.problems += [*wrong_place(where, entry, spec), *find_wrong_world(entry, spec), *wrong_config(where, choice, entry)]
        chosen.append(stack_conflicts.fill_method_defaults(where, entry, choice.config))
    verdict.problems += stack_conflicts.find_stack_problems(chosen)
    verdict.warnings += stack_conflicts.find_stack_warnings(chosen)
    for one in chosen:
        add_unmet_needs(one.where, one.entry, spec, verdict)
    return verdict


def find_pair_reader(spec: RunSpec, entries: Mapping[str, Entry]) -> str:
    """The procedure's method whose dataset holds preference pairs; empty where there is none."""
    names = [choice.name for choice in spec.methods if entries.get(choice.name, {}).get("reads_pairs")]
    return names[0] if names and spec.training.trainer == "procedure" else ""


def has_default_conflict(one: Entry, other: Entry) -> bool:
    """Whether two methods, each as it is by default, cannot be stacked."""
    return any(stack_conflicts.find_stack_problems([stack_conflicts.fill_method_defaults("", entry, {}) for entry in (one, other)]))


def list_applied_methods(known: Sequence[Entry], hook: str) -> list[str]:
    """Names of the methods that fill ``hook``, in the order they act in; ``known``: the entries of a recipe, in its order."""
    filling = [entry for entry in known if hook in entry["hooks"]]
    return [entry["name"] for entry in in_order(filling, hook, lambda entry: entry["roles"].get(hook))]


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
        yield Problem(f"{where}.name", name, "is a base: a recipe has exactly one", "choose it as the base")
    elif trainer not in entry["trains"]:
        on = " or ".join(entry["trains"])
        yield Problem(f"{where}.name", name, f"works on {on}, not on {trainer}", f"set training.trainer to {on}, or remove it")


def find_wrong_world(entry: Entry, spec: RunSpec) -> Iterator[Problem]:
    """A method that is bound to worlds finds nothing to act on in the episodes of another task."""
    worlds, task = entry.get("worlds", []), spec.task.name
    if worlds and (task not in worlds or spec.task.file is not None):
        allowed = " or ".join(worlds)
        yield Problem("task.name", task, f"{entry['name']} works in the world {allowed} only", f"set task.name to {allowed}, or remove the method")


def add_unmet_needs(where: str, entry: Entry, spec: RunSpec, verdict: Verdict) -> None:
    """Adds what the method needs of the spec and does not find."""
    data = spec.model_dump()
    for need in entry["requires"]:
        paths = [need["field"], *([need["or_field"]] if need["or_field"] else [])]
        values = [value_at(data, path) for path in paths]
        if any(is_requirement_met(value, need["holds"], need["value"]) for value in values):
            continue
        problem = Problem(
            paths[0], values[0], f"{entry['name']}: {need['why']}", f"{paths[0]} must be {need['holds'].replace('equals', '')} {need['value']}"
        )
        (verdict.problems if need["hard"] else verdict.warnings).append(problem)
    training = data["training"]
    if "log ratio" in entry["owns"] and training["trainer"] == "grpo" and training.get("beta"):  # DPO's beta is another thing
        message = f"{entry['name']} defines its own log ratio, which the KL penalty would see too"
        verdict.problems.append(Problem("training.beta", training["beta"], message, "set it to 0"))
    generation = training.get("generation", TRANSFORMERS)
    if "rollout" in entry["owns"] and generation != TRANSFORMERS:
        message = f"{entry['name']} decides how completions are generated and cannot do that through vLLM"
        verdict.problems.append(Problem("training.generation", generation, message, f"use {TRANSFORMERS}"))
    if "prompts" in entry["hooks"] and generation == "server":  # TRL asks it for the first prompt of each group
        message = f"{entry['name']} gives the members of a group prompts of their own, and the server is asked for one prompt a group"
        verdict.problems.append(Problem("training.generation", generation, message, f"use colocate or {TRANSFORMERS}"))
    if spec.resources.processes > 1 and not entry.get("parallel", True):
        message = f"{entry['name']} has not been seen to train the same in several processes, each of which sees its share of the batch"
        verdict.problems.append(Problem("resources.processes", spec.resources.processes, message, "use 1, or remove the method"))
    if spec.resources.sharding != NO_SHARDING and (hook := next((hook for hook in WHOLE_WEIGHTS if hook in entry["hooks"]), "")):
        message = f"{entry['name']} works on whole weights ({hook}), of which each process keeps a share"
        verdict.problems.append(Problem("resources.sharding", spec.resources.sharding, message, "use none, or remove the method"))
    if "reference" in entry["owns"] and spec.lora is not None:
        message = f"{entry['name']} moves the reference policy, which under LoRA is the policy without its adapters"
        verdict.problems.append(Problem("lora", "on", message, "train all weights"))


def value_at(data: Any, path: str) -> Any:
    for key in path.split("."):
        data = data.get(key) if isinstance(data, dict) else None
    return data


def is_requirement_met(value: Any, how: Literal["at least", "at most", "equals", "differs from"], wanted: Any) -> bool:
    if how == "equals":
        return bool(value == wanted)
    if how == "differs from":
        return bool(value != wanted)
    if value is None:
        return False
    return bool(value >= wanted) if how == "at least" else bool(value <= wanted)


def wrong_config(where: str, choice: MethodChoice, entry: Entry) -> Iterator[Problem]:
    model = config_model(json.dumps(entry["parameters"], sort_keys=True))
    try:
        model.model_validate(choice.config)
    except ValidationError as error:
        for problem in refusals.problems_of(error, model):
            yield Problem(f"{where}.config.{problem.field}", problem.value, problem.message, problem.fix, problem.given)


@lru_cache(512)
def config_model(schema: str) -> type[Strict]:
    """Of a schema as JSON text: making a model takes longer than checking with it."""
    return from_schema(json.loads(schema))


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
