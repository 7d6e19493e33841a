"""What a person changed in a launch form, and the command line that launches the same."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from lab.training.catalog.catalog import Catalog, CatalogError
from lab.training.runs import drafts
from lab.training.runs.drafts import Draft, Spec
from lab.training.runs.forms import LaunchForm
from lab.training.runs.reward_words import describe_reward_columns
from lab.training.runs.stages import as_argument, stage_specs
from trainers.contract.stacking import DEFAULT_BASES

NEVER_SAID = ("version", "recipe")
STACK = ("base", "methods")


@dataclass(frozen=True)
class Change:
    """One setting of the specs, by its dotted path, before and after, as JSON writes them."""

    path: str
    before: str
    after: str
    value: Any = None


def flatten_spec_leaves(value: Any, path: str = "") -> dict[str, Any]:
    """Dotted path → value of everything in a spec that is not an object with entries."""
    if isinstance(value, Mapping) and value:
        return {key: leaf for name, inner in value.items() for key, leaf in flatten_spec_leaves(inner, f"{path}.{name}" if path else name).items()}
    return {path: value}


def diff_stage_specs(before: list[Spec], after: list[Spec]) -> list[Change]:
    """What differs, stage by stage; what differs the same way in every stage is said once, without the stage."""
    pairs = [(_collect_settings(old), _collect_settings(new)) for old, new in zip(before, after, strict=True)]
    changes: list[Change] = []
    for number, (old, new) in enumerate(pairs):
        for path, value in new.items():
            if old.get(path) == value and not any(other.startswith(f"{path}.") for other in old):
                continue  # the same, or nothing where there was nothing
            change = Change(path, *_format_settings(old.get(path), value), value)
            everywhere = all(path in other and other[path] == value and mine.get(path) != value for mine, other in pairs)
            if everywhere and number == 0:
                changes.append(change)
            elif not everywhere:
                prefix = f"stages.{number}." if len(pairs) > 1 and not path.startswith("policy") else ""
                changes.append(Change(prefix + path, change.before, change.after, value))
    return changes


def diff_recipe_versions(before: list[Spec], after: list[Spec]) -> list[Change]:
    """Everything that is otherwise in one version of a recipe than in another, also what only one of them has."""
    changes, nothing = [], Spec()
    for number, (old_spec, new_spec) in enumerate(zip_longest(before, after, fillvalue=nothing)):
        old, new = _collect_settings(old_spec), _collect_settings(new_spec)
        prefix = f"stages.{number}." if max(len(before), len(after)) > 1 else ""
        for path in dict.fromkeys([*old, *new]):
            if old.get(path) != new.get(path):
                changes.append(Change(prefix + path, *_format_settings(old.get(path), new.get(path)), new.get(path)))
    return changes


def _collect_settings(spec: Spec) -> dict[str, Any]:
    """The spec by dotted paths; of the stack the names, and each method's parameters under its name."""
    settings = {path: value for path, value in flatten_spec_leaves(spec).items() if path.split(".")[0] not in (*NEVER_SAID, *STACK)}
    base: Spec | None = spec.get("base")
    methods: list[Spec] = spec.get("methods") or []
    if "training" in spec:
        settings["base"] = base["name"] if base else DEFAULT_BASES.get(spec["training"]["trainer"], "")
        settings["methods"] = ", ".join(choice["name"] for choice in methods)
    for choice in [*([base] if base else []), *methods]:
        settings |= {f"method.{choice['name']}.{key}": value for key, value in choice["config"].items()}
    return settings


def _format_settings(before: Any, after: Any) -> tuple[str, str]:
    """Columns of reward functions in words, unless these are the same before and after."""
    words = [describe_reward_columns(value) or _format_setting(value) for value in (before, after)]
    return (words[0], words[1]) if words[0] != words[1] else (_format_setting(before), _format_setting(after))


def _format_setting(value: Any) -> str:
    return value if isinstance(value, str) and value else "–" if value in (None, "", {}, []) else json.dumps(value)


def complete_specs(form: LaunchForm) -> list[Spec]:
    return [drafts.complete_spec(form.catalog, spec) for spec in form.specs()]


def _read_draft_specs(form: LaunchForm, draft: Draft) -> list[Spec]:
    """What the form would stand for if it had just begun with a draft; its queue is no part of that, and need not be looked up."""
    return complete_specs(LaunchForm(form.team, form.catalog, draft, initial={"queue": ""}))


def of_form(form: LaunchForm) -> list[Change]:
    """What the person changed from what the form started with."""
    return diff_stage_specs(_read_draft_specs(form, form.draft), complete_specs(form))


def build_launch_command(form: LaunchForm) -> str:
    """``manage.py launch`` with everything that differs from the recipe; empty when no recipe of the catalogue is that near."""
    try:
        recipe = drafts.of_recipe(form.catalog, form.draft.recipe)
    except CatalogError:
        return ""
    if not _has_same_trainers(recipe, form.draft):
        return ""
    specs = complete_specs(form)
    changed = diff_stage_specs(_read_draft_specs(form, recipe), specs)
    words = [f"--name {shlex.quote(form.values['name'])}"] if form.values["name"] else []
    words += stack_words(form.catalog, form.draft.recipe, specs)
    words += [f"--set {shlex.quote(f'{change.path}={_format_argument(change.value)}')}" for change in changed if not _of_stack(change.path)]
    return " \\\n  ".join([f".venv/bin/python manage.py launch {form.draft.recipe}", *words])


def _of_stack(path: str) -> bool:
    parts = path.split(".")
    return (parts[2] if parts[0] == "stages" else parts[0]) in (*STACK, "method")


def stack_words(catalog: Catalog, recipe: str, specs: list[Spec]) -> list[str]:
    """``--base`` and ``--method`` where they say what the specs stack; where they cannot, each stage's base and methods as JSON."""
    if _collect_stacks(stage_specs(catalog, recipe, {})) == _collect_stacks(specs):
        return []
    bases = list({json.dumps(spec["base"]): spec["base"] for spec in specs if spec["base"]}.values())
    methods = list({json.dumps(choice): choice for spec in specs for choice in spec["methods"]}.values())
    overrides = {part: value for part, value in (("base", bases[0] if bases else None), ("methods", methods)) if value}
    if _collect_stacks(stage_specs(catalog, recipe, overrides)) == _collect_stacks(specs):
        return [f"--{flag} {shlex.quote(as_argument(choice))}" for flag, kind in (("base", bases), ("method", methods)) for choice in kind]
    prefixes = ["" if len(specs) == 1 else f"stages.{number}." for number in range(len(specs))]
    return [
        f"--set {shlex.quote(f'{prefix}{part}={json.dumps(spec[part])}')}" for prefix, spec in zip(prefixes, specs, strict=True) for part in STACK
    ]


def _collect_stacks(specs: list[Spec]) -> list[tuple[Any, Any]]:
    """Base and methods of each stage; a recipe may leave out what is empty."""
    return [
        (_normalize_choice(spec["base"]) if spec.get("base") else None, [_normalize_choice(choice) for choice in spec.get("methods") or []])
        for spec in specs
    ]


def _normalize_choice(choice: Spec) -> Spec:
    return {"name": choice["name"], "config": choice.get("config") or {}}


def _has_same_trainers(recipe: Draft, draft: Draft) -> bool:
    return [spec["training"]["trainer"] for _, spec in recipe.stages] == [spec["training"]["trainer"] for _, spec in draft.stages]


def _format_argument(value: Any) -> str:
    """A value as ``--set`` reads it: text stays bare unless it would be taken for JSON."""
    if not isinstance(value, str):
        return json.dumps(value)
    try:
        json.loads(value)
    except ValueError:
        return value
    return json.dumps(value)


def specs_as_json(specs: list[Spec]) -> str:
    return json.dumps(specs[0] if len(specs) == 1 else specs, indent=2, ensure_ascii=False)
