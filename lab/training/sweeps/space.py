"""The space of a sweep: which hyperparameters of a spec can be searched, the axes that somebody chose, and a spec with values put in."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lab.training.catalog.catalog import CatalogError, load_catalog
from lab.training.runs.schema_form import build_schema_fields
from lab.training.runs.spec_fields import BoundedField, ChoiceField, FloatField, IntegerField, SpecField, SwitchField, shorten_number
from lab.training.runs.stack import load_method_entries, name_of, stack_of
from trainers.contract.stacking import DEFAULT_BASES

Spec = dict[str, Any]
SEED = "seed"  # the key of the axis that every spec has
SWITCHES = {"true": True, "on": True, "yes": True, "false": False, "off": False, "no": False}


@dataclass(frozen=True)
class Axis:
    """A hyperparameter with the values to try, or the range to draw from. ``key``: training.<name>, base.<name> or methods.<method>.<name>."""

    key: str
    values: tuple[Any, ...] = ()
    low: Any = None
    high: Any = None
    log: bool = False

    @property
    def is_range(self) -> bool:
        return self.low is not None or self.high is not None

    @property
    def places(self) -> list[tuple[str, Any]]:
        """(input, value) of everything that somebody wrote."""
        ends = [(name, end) for name, end in (("low", self.low), ("high", self.high)) if end is not None]
        return [*(("values", value) for value in self.values), *ends]

    def as_json(self) -> dict[str, Any]:
        values = {"values": [*self.values]} if self.values else {}
        return {"key": self.key, **values, **({"low": self.low, "high": self.high, "log": self.log} if self.is_range else {})}


def read_axes(space: list[dict[str, Any]]) -> list[Axis]:
    """The axes of a stored sweep."""
    return [Axis(one["key"], tuple(one.get("values", ())), one.get("low"), one.get("high"), bool(one.get("log"))) for one in space]


def list_sweepable_fields(spec: Spec) -> dict[str, SpecField]:
    """Key → form field of every number, choice and switch of the spec's trainer, its base and its methods, by the catalogue."""
    training = spec.get("training")
    trainer = training.get("trainer", "") if isinstance(training, dict) else ""
    try:
        found = {f"training.{name}": field for name, field in build_schema_fields(load_catalog().trainer(trainer)["schema"]).items()}
    except CatalogError:
        return {}
    stack = stack_of(spec)
    entries = load_method_entries(stack.names)
    for name in stack.names:
        prefix = "base" if name == stack.base else f"methods.{name}"
        for key, field in build_schema_fields(entries.get(name, {}).get("parameters", {})).items():
            field.label = f"{name}: {field.label}"
            found[f"{prefix}.{key}"] = field
    return {key: field for key, field in found.items() if isinstance(field, BoundedField | ChoiceField | SwitchField)}


def apply_values(spec: Spec, values: Mapping[str, Any]) -> Spec:
    """The spec with the values of one trial."""
    changed = copy.deepcopy(spec)
    for key, value in values.items():
        part, _, rest = key.partition(".")
        if part == "training":
            changed["training"][rest] = value
        elif part == "base":
            changed["base"] = changed.get("base") or {"name": DEFAULT_BASES.get(changed["training"]["trainer"], "")}
            changed["base"].setdefault("config", {})[rest] = value
        elif part == "methods":
            name, _, parameter = rest.rpartition(".")
            for choice in changed["methods"]:
                if choice["name"] == name:
                    choice.setdefault("config", {})[parameter] = value
        else:
            changed[key] = value
    return changed


def read_value(spec: Spec, key: str, default: Any) -> Any:
    """What the spec says of a hyperparameter now."""
    part, _, rest = key.partition(".")
    if part == "training":
        return spec.get("training", {}).get(rest, default)
    methods = spec.get("methods")
    stacked = methods if isinstance(methods, list) else []
    choices = [spec.get("base")] if part == "base" else [one for one in stacked if name_of(one) == rest.rpartition(".")[0]]
    configs = [choice["config"] for choice in choices if isinstance(choice, dict) and isinstance(choice.get("config"), dict)]
    return next((config.get(rest.rpartition(".")[2], default) for config in configs), default)


def clean_axis_value(field: SpecField, value: Any) -> Any:
    """A value as the spec holds it: of text what was meant, of a number one of the field's kind. What does not fit stays, to be refused."""
    if isinstance(value, str):
        value = SWITCHES.get(value.strip().lower(), value.strip()) if isinstance(field, SwitchField) else field.clean(value)
    if isinstance(value, bool):
        return value
    if isinstance(field, FloatField) and isinstance(value, int):
        return float(value)
    return int(value) if isinstance(field, IntegerField) and isinstance(value, float) and value.is_integer() else value


def format_axis_value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value:.4g}" if isinstance(value, float) else str(shorten_number(value))


def describe_values(values: Mapping[str, Any]) -> str:
    """The values of a trial in the name of its run."""
    return ", ".join(f"{key.rpartition('.')[2]} {format_axis_value(value)}" for key, value in values.items())
