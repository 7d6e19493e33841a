"""JSON schema (of trainers/catalog.json) → form fields. A parameter's title, help, default and bounds are written once, in trainers/."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

Schema = Mapping[str, Any]

UNBOUNDED = 1e6  # a larger bound is a guard, not something to tell
KINDS = {"integer": "integer", "number": "number", "boolean": "boolean", "string": "text", "array": "list"}


@dataclass(frozen=True)
class Field:
    """One parameter as a form shows it. ``name`` is the input's name; ``attributes`` are its HTML bounds."""

    name: str
    key: str
    label: str
    help: str
    kind: str  # integer, number, boolean, choice, list, text
    default: Any = None
    optional: bool = False  # may be left empty, which means null
    advanced: bool = False
    unit: str = ""
    choices: tuple[str, ...] = ()
    attributes: Mapping[str, str] = field(default_factory=dict)
    items: str = "text"  # kind of a list's items
    value: str = ""  # as the input shows it
    error: str = ""

    @property
    def facts(self) -> str:
        """Default and bounds in words, for the end of the help."""
        if self.kind not in ("integer", "number"):
            return ""
        default = f"Default {self.default_text}" if self.default_text else ""
        text = ", ".join(part for part in (default, self.bounds) if part)
        return f"{text[:1].upper()}{text[1:]}." if text else ""

    @property
    def bounds(self) -> str:
        """What a number may be, in words; of a choice, what there is."""
        if self.kind == "choice":
            return " or ".join(self.choices)
        low, high = self.attributes.get("min"), self.attributes.get("max")
        above, below = self.attributes.get("data-above"), self.attributes.get("data-below")
        words = [f"more than {above}"] if above else [f"at least {low}"] if low else []
        words += [f"below {below}"] if below else [f"at most {high}"] if high and float(high) < UNBOUNDED else []
        return ", ".join(words)

    @property
    def default_text(self) -> str:
        return as_text(self.default)

    @property
    def checked(self) -> bool:
        return self.value == "on"

    def bound(self, values: Mapping[str, str], errors: Mapping[str, str]) -> Field:
        return replace(self, value=values.get(self.name, ""), error=errors.get(self.name, ""))


def build_schema_fields(schema: Schema, prefix: str = "") -> list[Field]:
    """The fields of a flat model, in the order they were written; constants and nested models are left out."""
    found = []
    for key, part in schema.get("properties", {}).items():
        made = _build_field(key, part, f"{prefix}{key}")
        if made is not None:
            found.append(made)
    return found


def _build_field(key: str, part: Schema, name: str) -> Field | None:
    options = [option for option in part.get("anyOf", [part]) if option.get("type") != "null"]
    inner = options[0]
    kind = KINDS.get(inner.get("type", ""))
    items = _parse_item_kind(inner) if kind == "list" else "text"
    if "const" in inner or kind is None or len(options) > 1 or not items:
        return None
    choices = tuple(str(value) for value in inner.get("enum", ()))
    return Field(
        name=name,
        key=key,
        label=_format_label(part.get("title") or inner.get("title") or key),
        help=part.get("description", ""),
        kind="choice" if choices else kind,
        default=part.get("default"),
        optional=len(part.get("anyOf", ())) > 1,
        advanced=bool(part.get("advanced")),
        unit=part.get("unit", ""),
        choices=choices,
        attributes=_build_attributes(kind, {**inner, **part}),
        items=items,
    )


def _parse_item_kind(part: Schema) -> str:
    """The kind of a list's items; empty when they are of several kinds, or not plain."""
    types = {item.get("type", "string") for item in part.get("prefixItems", [part.get("items", {})])}
    return KINDS.get(types.pop(), "") if len(types) == 1 else ""


def _format_label(title: str) -> str:
    """Titles that pydantic makes out of names ("Sampled Prompts") read like the written ones."""
    words = title.replace("_", " ").split()
    return " ".join([words[0], *(word if word.isupper() or not word.istitle() else word.lower() for word in words[1:])]) if words else title


def _build_attributes(kind: str, part: Schema) -> dict[str, str]:
    found: dict[str, str] = {}
    if kind in ("integer", "number"):
        found["step"] = "1" if kind == "integer" else "any"
        whole = 1 if kind == "integer" else 0
        if "minimum" in part or "exclusiveMinimum" in part:
            found["min"] = as_text(part["minimum"] if "minimum" in part else part["exclusiveMinimum"] + whole)
        if "maximum" in part or "exclusiveMaximum" in part:
            found["max"] = as_text(part["maximum"] if "maximum" in part else part["exclusiveMaximum"] - whole)
        if kind == "number" and "exclusiveMinimum" in part:
            found["data-above"] = found["min"]
        if kind == "number" and "exclusiveMaximum" in part:
            found["data-below"] = found["max"]
    for key, attribute in (("maxLength", "maxlength"), ("minLength", "minlength"), ("pattern", "pattern")):
        if kind == "text" and key in part:
            found[attribute] = str(part[key]).removeprefix("^").removesuffix("$")
    return found


def as_text(value: Any) -> str:
    """A spec's value as an input holds it. Numbers in the shortest form that reads back the same."""
    if value is None or value is False:
        return ""
    if value is True:
        return "on"
    if isinstance(value, list):
        return ", ".join(as_text(item) for item in value)
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    return str(value)


def from_text(made: Field, text: str) -> Any:
    """The spec's value of an input's text. What does not read as the field's kind stays text, for the spec to refuse by name."""
    if made.kind == "text" and text == made.default:
        return text  # with the blanks at its ends, which may be meant
    text = text.strip()
    if made.kind == "boolean":
        return text == "on"
    if made.kind == "list":
        return [_parse_plain_value(made.items, item) for item in (part.strip() for part in text.split(",")) if item]
    if not text and made.optional:
        return None
    return _parse_plain_value(made.kind, text)


def _parse_plain_value(kind: str, text: str) -> Any:
    try:
        if kind == "integer":
            return int(text)
        if kind == "number":
            return float(text)
    except ValueError:
        return text
    return text
