"""JSON schema (of trainers/catalog.json) → form fields. A parameter's title, help, default and bounds are written once, in trainers/."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lab.training.runs.spec_fields import (
    NO_AUTOFILL,
    BoundedField,
    ChoiceField,
    FloatField,
    IntegerField,
    ListField,
    SpecField,
    SwitchField,
    TextField,
    shorten_number,
)

Schema = Mapping[str, Any]

ITEMS: dict[str, type[SpecField]] = {"integer": IntegerField, "number": FloatField, "string": TextField}


def build_schema_fields(schema: Schema) -> dict[str, SpecField]:
    """The fields of a flat model by their keys, in the order they were written; constants and nested models are left out."""
    made = ((key, _build_field(key, part)) for key, part in schema.get("properties", {}).items())
    return {key: field for key, field in made if field is not None}


def _build_field(key: str, part: Schema) -> SpecField | None:
    options = [option for option in part.get("anyOf", [part]) if option.get("type") != "null"]
    if "const" in options[0] or len(options) > 1:
        return None
    inner = {**options[0], **part}
    kind, optional = options[0].get("type", ""), len(part.get("anyOf", ())) > 1
    words = {"label": _format_label(inner.get("title") or key), "help_text": part.get("description", ""), "initial": part.get("default")}
    made: SpecField
    if choices := inner.get("enum"):
        made = ChoiceField(choices=[(str(value), str(value)) for value in choices], **words)
    elif kind in ("integer", "number"):
        made = _build_number_field(kind, inner, required=not optional, **words)
    elif kind == "boolean":
        made = SwitchField(**words)
    elif kind == "string":
        made = TextField(max_length=inner.get("maxLength"), min_length=inner.get("minLength"), empty_value=None if optional else "", **words)
        if "pattern" in inner:
            made.widget.attrs["pattern"] = inner["pattern"].removeprefix("^").removesuffix("$")
    elif kind == "array" and (item := _parse_item_kind(inner)) in ITEMS:
        made = ListField(ITEMS[item](), **words)
    else:
        return None
    if made.widget.input_type in ("number", "text"):
        made.widget.attrs |= {**NO_AUTOFILL, "placeholder": "none"} if optional else NO_AUTOFILL
    made.unit, made.advanced = part.get("unit", ""), bool(part.get("advanced"))
    return made


def _build_number_field(kind: str, part: Schema, **options: Any) -> BoundedField:
    """An integer's bounds are its first and last value; a bound that a fraction may not reach is told to the scripts apart."""
    above, below = shorten_number(part.get("exclusiveMinimum")), shorten_number(part.get("exclusiveMaximum"))
    whole = 1 if kind == "integer" else 0
    low = shorten_number(part["minimum"]) if "minimum" in part else None if above is None else above + whole
    high = shorten_number(part["maximum"]) if "maximum" in part else None if below is None else below - whole
    if whole:
        return IntegerField(min_value=low, max_value=high, step_size=1, **options)
    made = FloatField(min_value=low, max_value=high, **options)
    made.widget.attrs |= {name: bound for name, bound in (("data-above", above), ("data-below", below)) if bound is not None}
    return made


def _parse_item_kind(part: Schema) -> str:
    """The kind of a list's items; empty when they are of several kinds."""
    types = {item.get("type", "string") for item in part.get("prefixItems", [part.get("items", {})])}
    return str(types.pop()) if len(types) == 1 else ""


def _format_label(title: str) -> str:
    """Titles that pydantic makes out of names ("Sampled Prompts") read like the written ones."""
    words = title.replace("_", " ").split()
    return " ".join([words[0], *(word if word.isupper() or not word.istitle() else word.lower() for word in words[1:])]) if words else title
