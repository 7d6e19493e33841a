"""A form whose inputs stand for a part of a spec: always filled, read without a refusal of its own, and told what others find wrong."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django import forms
from django.forms.renderers import DjangoTemplates
from django.forms.utils import flatatt
from django.http import HttpRequest
from django.utils.html import format_html

from lab.training.runs.spec_fields import BoundedField, SpecField


class InputRenderer(DjangoTemplates):
    """Writes inputs without a template: a chain has two hundred of them, and Django's template for each takes a quarter of the page's time."""

    def render(self, template_name: str, context: dict[str, Any], request: HttpRequest | None = None) -> str:
        widget = context.get("widget", {})
        if "type" not in widget:
            return super().render(template_name, context, request)
        return format_html("<input{}>", flatatt({key: widget[key] for key in ("type", "name", "value")} | widget["attrs"]))


class DescribedField(forms.BoundField):
    """Its help and its error stand beside it under names that scripts know."""

    form: SpecForm

    @property
    def data(self) -> Any:
        """What was sent; where nobody sent anything the text of the initial value."""
        is_initial = self.form.is_unsent and self.html_name not in self.form.data
        return self.field.prepare_value(self.initial) if is_initial else super().data

    @property
    def aria_describedby(self) -> str | None:
        if self.is_hidden or "aria-describedby" in self.field.widget.attrs:
            return None
        return f"help-{self.html_name} error-{self.html_name}" if self.help_text else f"error-{self.html_name}"


class SpecForm(forms.Form):
    """Without ``data`` it is bound all the same, to its initial values: a form that nobody sent yet is read, compared and checked like one that was.

    Names under a prefix are apart by a dot, as in a spec.
    """

    bound_field_class = DescribedField
    default_renderer = InputRenderer()  # one for all forms: it keeps the templates it has read
    fields: dict[str, SpecField]  # type: ignore[assignment]

    def __init__(
        self,
        data: Mapping[str, Any] | None = None,
        prefix: str = "",
        initial: Mapping[str, Any] | None = None,
        fields: Mapping[str, SpecField] | None = None,
    ) -> None:
        super().__init__(data or {}, prefix=prefix, initial=dict(initial or {}), auto_id="id-%s")
        self.is_unsent = data is None
        self.fields |= fields or {}

    def add_prefix(self, field_name: str) -> str:
        return f"{self.prefix}.{field_name}" if self.prefix else field_name

    def clean(self) -> None:
        self._typed = dict(self.cleaned_data)

    @property
    def values(self) -> dict[str, Any]:
        """What was typed, as a spec holds it. Also what is refused, which Django then drops from ``cleaned_data``: the page shows the whole spec."""
        self.is_valid()  # reads it, the first time
        return self._typed

    def list_empty_numbers(self) -> list[str]:
        """The fields that must hold a number and are empty."""
        return [name for name, value in self.values.items() if value == "" and isinstance(self.fields[name], BoundedField)]

    @property
    def nested(self) -> list[SpecForm]:
        """The forms that this one is made of."""
        return []

    @property
    def refused_count(self) -> int:
        """Inputs, and cards of methods, with something wrong. What is wrong with the form as a whole is at none."""
        return len(self.errors) - bool(self.non_field_errors()) + sum(len(one.errors) for one in self.nested)


@dataclass(frozen=True)
class Input:
    """Where a problem is shown: at an input of ``form``; without ``name`` at the form as a whole, the card of a method."""

    form: SpecForm
    name: str = ""

    @property
    def html_name(self) -> str:
        return self.form.add_prefix(self.name) if self.name else str(self.form.prefix)

    @property
    def label(self) -> str:
        """What the page calls it; of a method's card its name."""
        return str(self.form[self.name].label) if self.name else self.html_name.partition(".method.")[2]

    def refuse(self, text: str) -> None:
        self.form.add_error(self.name or None, text)
