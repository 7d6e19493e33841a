"""Form fields of a spec's parameters. They read what was typed and refuse nothing: bounds and messages are the spec's own (trainers/contract).

Text that does not parse stays text, for the spec to refuse by name; the bounds are attributes of the inputs, for browsers.
"""

from __future__ import annotations

from typing import Any

from django import forms
from django.core.exceptions import ValidationError

UNBOUNDED = 1e6  # a larger bound is a guard, not something to tell
NO_AUTOFILL = {"autocomplete": "off"}


def shorten_number(value: Any) -> Any:
    """A number in the shortest form that reads back the same; anything else as it is."""
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) < 1e15 else value


class SpecField(forms.Field):
    """``initial`` is the parameter's default. An input may be empty unless ``required`` says otherwise."""

    unit = ""
    advanced = False

    def __init__(self, *, required: bool = False, **options: Any) -> None:
        super().__init__(required=required, **options)

    def clean(self, value: Any) -> Any:
        try:
            return self.to_python(value)
        except ValidationError:
            return value.strip()

    def prepare_value(self, value: Any) -> Any:
        return "" if value is None else str(shorten_number(value))

    @property
    def default_text(self) -> str:
        return str(self.prepare_value(self.initial))

    @property
    def bounds(self) -> str:
        """What the parameter may be, in words."""
        return ""

    @property
    def facts(self) -> str:
        """Default and bounds of a number, for the end of the help."""
        return ""


class BoundedField(SpecField):
    """A number, whole or not."""

    @property
    def bounds(self) -> str:
        low, high, above, below = (self.widget.attrs.get(name) for name in ("min", "max", "data-above", "data-below"))
        words = [f"more than {above}"] if above is not None else [f"at least {low}"] if low is not None else []
        words += [f"below {below}"] if below is not None else [f"at most {high}"] if high is not None and high < UNBOUNDED else []
        return ", ".join(words)

    @property
    def facts(self) -> str:
        default = f"Default {self.default_text}" if self.default_text else ""
        text = ", ".join(part for part in (default, self.bounds) if part)
        return f"{text[:1].upper()}{text[1:]}." if text else ""

    def to_python(self, value: Any) -> Any:
        """None for an empty input only where it may be empty."""
        text = (value or "").strip()
        return super().to_python(text) if text or not self.required else ""


class IntegerField(BoundedField, forms.IntegerField): ...


class FloatField(BoundedField, forms.FloatField): ...


class SwitchField(SpecField, forms.BooleanField):
    def prepare_value(self, value: Any) -> Any:
        return "on" if value else ""

    @property
    def default_text(self) -> str:
        return "on" if self.initial else "off"

    @property
    def bounds(self) -> str:
        return "on or off"


class TextField(SpecField, forms.CharField):
    def to_python(self, value: Any) -> Any:
        return value if value and value == self.initial else super().to_python(value)  # blanks at the ends of a default may be meant


class ListField(SpecField):
    """Values of one kind with commas between them."""

    def __init__(self, item: SpecField, **options: Any) -> None:
        super().__init__(**options)
        self.item = item

    def prepare_value(self, value: Any) -> Any:
        return ", ".join(self.item.prepare_value(one) for one in value) if isinstance(value, list) else super().prepare_value(value)

    def to_python(self, value: Any) -> Any:
        return [self.item.clean(part) for part in (value or "").split(",") if part.strip()]


class Select(forms.Select):
    """Shows a value that is not offered any more as the one that is chosen."""

    def optgroups(self, name: str, value: list[str], attrs: dict[str, Any] | None = None) -> list[Any]:
        groups = super().optgroups(name, value, attrs)
        known = {option["value"] for _, options, _ in groups for option in options}
        gone = [text for text in value if text and text not in known]
        return groups + [(None, [self.create_option(name, text, text, True, len(groups))], len(groups)) for text in gone]


class ChoiceField(SpecField, forms.ChoiceField):
    widget = Select

    @property
    def bounds(self) -> str:
        choices: Any = self.choices
        return " or ".join(str(value) for value, _ in choices)
