"""A recipe and a person's changes to it → one spec a stage. Pure: nothing is launched or looked up here."""

from __future__ import annotations

import json
import re
from typing import Any

from lab.lib.numbers import parse_whole_number
from lab.training.catalog.catalog import Catalog
from trainers.contract.spec import Problem, SpecError

Spec = dict[str, Any]
PARAMETER = re.compile(r'(?:"(?:[^"\\]|\\.)*"|\[[^\]]*\]|\{[^}]*\}|[^,"\[{])+')  # up to a comma outside of quotes and brackets
NAMES = {
    "policy": "kind",
    "teacher": "kind",
    "training": "trainer",
    "task": "name",
}  # what makes a part another thing: then nothing of the old one is kept


def stage_specs(catalog: Catalog, recipe: str, overrides: Spec) -> list[Spec]:
    """The specs of a recipe's stages without output, each with its title under ``title``.

    Of ``overrides`` every stage takes what fits it: hyperparameters its trainer has, the base and the methods that work on it. ``policy``
    belongs to the first stage, later ones go on from the stage before. ``overrides["stages"]`` holds changes for single stages, in order.
    Raises CatalogError and SpecError.
    """
    stages = catalog.recipe(recipe)["stages"]
    common = {key: value for key, value in overrides.items() if key != "stages"}
    single = overrides.get("stages") or [{} for _ in stages]
    check_stages(recipe, stages, single)
    if len(stages) > 1 and common.get("dataset"):
        fix = "set it for a single stage, for example stages.0.dataset"
        raise SpecError([Problem("dataset", common["dataset"], "the stages of a recipe need different kinds of rows", fix)])
    alone = len(stages) == 1
    specs = []
    for number, stage in enumerate(stages):
        spec = {"recipe": recipe, **stage["spec"]}
        fitting = common if alone else part_for(catalog, stages, number, common)
        specs.append({**merge_spec_changes(merge_spec_changes(spec, fitting), single[number]), "title": stage["title"]})
    return specs


def check_stages(recipe: str, stages: list[Spec], single: Any) -> None:
    """Raises SpecError when the changes for single stages cannot be theirs."""
    if not isinstance(single, list) or not all(isinstance(changes, dict) for changes in single):
        raise SpecError([Problem("stages", single, "not a list with one object a stage", 'write [{"training": {"max_steps": 20}}, {}, …]')])
    if len(single) != len(stages):
        titles = ", ".join(stage["title"] for stage in stages)
        raise SpecError(
            [Problem("stages", f"{len(single)} entries", f"the recipe {recipe} has {len(stages)} stages: {titles}", "give one entry a stage")]
        )
    for number, changes in enumerate(single[1:], start=1):
        if "policy" in changes:
            raise SpecError(
                [Problem(f"stages.{number}.policy", changes["policy"], "a later stage trains the policy of the previous stage", "remove it")]
            )


def part_for(catalog: Catalog, stages: list[Spec], number: int, common: Spec) -> Spec:
    """What of ``common`` fits stage ``number``. What fits no stage goes to the first one, where the spec refuses it by its name."""
    trainers = [stage["spec"]["training"]["trainer"] for stage in stages]
    part = {key: value for key, value in common.items() if key not in ("policy", "training", "base", "methods")}
    part |= stack_for(catalog, trainers, number, common)
    if "policy" in common and number == 0:
        part["policy"] = common["policy"]
    training = common.get("training")
    if not isinstance(training, dict):
        return part if training is None else {**part, "training": training}
    fields = [catalog.hyperparameters(trainer) for trainer in trainers]
    named_trainer = training.get("trainer")
    targets = [named_trainer in (None, trainer) for trainer in trainers]
    taken = {}
    for key, value in training.items():
        fitting = [target and key in known for target, known in zip(targets, fields, strict=True)]
        if fitting[number] or (number == 0 and not any(fitting)):
            taken[key] = value
    return {**part, "training": taken} if taken else part


def stack_for(catalog: Catalog, trainers: list[str], number: int, common: Spec) -> Spec:
    """The base and the methods of ``common`` that work on the trainer of stage ``number``."""

    def fits(choice: Any) -> bool:
        entry = catalog.methods_by_name.get(choice.get("name", "")) if isinstance(choice, dict) else None
        targets = [trainer in entry["trains"] for trainer in trainers] if entry else []
        return targets[number] if any(targets) else number == 0

    part: Spec = {}
    if "base" in common and (common["base"] is None or fits(common["base"])):
        part["base"] = common["base"]
    if isinstance(common.get("methods"), list):
        part["methods"] = [choice for choice in common["methods"] if fits(choice)]
    elif "methods" in common:
        part["methods"] = common["methods"]
    return part


def merge_spec_changes(base: Spec, changes: Spec, at: str = "") -> Spec:
    """``base`` with ``changes`` deep inside; a part that becomes another thing (another policy kind, trainer or task) is replaced whole."""
    result = dict(base)
    for key, value in changes.items():
        old = base.get(key)
        name = NAMES.get(key, "") if not at else ""
        renamed = isinstance(value, dict) and isinstance(old, dict) and name and value.get(name, old.get(name)) != old.get(name)
        renamed = renamed or (key == "base" and not at and isinstance(value, dict) and "name" in value)  # a base comes with all its parameters
        if isinstance(value, dict) and isinstance(old, dict) and not renamed:
            result[key] = merge_spec_changes(old, value, f"{at}{key}.")
        else:
            result[key] = value
    return result


def from_assignments(assignments: list[str]) -> Spec:
    """``["training.max_steps=20", "name=x"]`` → ``{"training": {"max_steps": 20}, "name": "x"}``; values are JSON where they parse as JSON."""
    result: Spec = {}
    problems = []
    for text in assignments:
        key, equals, value = text.partition("=")
        parts = key.strip().split(".")
        if not equals or not all(parts):
            problems.append(Problem(text, None, "not in the form key=value", "for example training.max_steps=20", given=False))
            continue
        problems += set_dotted_value(result, parts, decode_json_or_text(value))
    if problems:
        raise SpecError(problems)
    return result


def from_argument(text: str) -> Spec:
    """A method as the command line names it: ``"rs-grpo:risk=3,bounds=[0.2, 1]"`` → ``{"name": "rs-grpo", "config": {…}}``. Raises SpecError."""
    name, _, rest = text.partition(":")
    config, problems = {}, []
    for part in PARAMETER.findall(rest):
        key, equals, value = part.partition("=")
        if equals and key.strip():
            config[key.strip()] = decode_json_or_text(value.strip())
        else:
            problems.append(Problem(text, None, f"{part} is not in the form key=value", "for example rs-grpo:risk=3", given=False))
    if not name.strip():
        problems.append(Problem(text, None, "names no method", "for example rs-grpo:risk=3", given=False))
    if problems:
        raise SpecError(problems)
    return {"name": name.strip(), "config": config}


def as_argument(choice: Spec) -> str:
    """What ``from_argument`` reads back as ``choice``."""
    config = ",".join(f"{key}={json.dumps(value)}" for key, value in choice["config"].items())
    return f"{choice['name']}:{config}" if config else str(choice["name"])


def set_dotted_value(into: Spec, parts: list[str], value: Any) -> list[Problem]:
    """Sets a dotted key; a list index (``stages.1.training.…``) opens the list of single stages."""
    if parts[0] == "stages":
        return placed_in_stage(into, parts, value)
    for part in parts[:-1]:
        inner = into.setdefault(part, {})
        if not isinstance(inner, dict):
            return [Problem(".".join(parts), value, f"{part} already has the value {inner!r}", "set one or the other")]
        into = inner
    into[parts[-1]] = value
    return []


def placed_in_stage(into: Spec, parts: list[str], value: Any) -> list[Problem]:
    number = parse_whole_number(parts[1], 99) if len(parts) > 2 else None
    if number is None:
        return [Problem(".".join(parts), value, "a stage is named by its number from 0", "for example stages.1.training.max_steps=20")]
    stages = into.setdefault("stages", [])
    stages += [{} for _ in range(number + 1 - len(stages))]
    return set_dotted_value(stages[number], parts[2:], value)


def decode_json_or_text(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text
