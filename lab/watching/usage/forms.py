"""The form of a team's quotas and prices."""

from __future__ import annotations

import re
from typing import Any

from django import forms
from django.core.exceptions import ValidationError

from lab.watching.usage.models import Quota

GIB = 1 << 30
MOST_HOURS, MOST_GIB, MOST_RUNS, MOST_PRICE = 1e7, 1e8, 10_000, 1e6
QUEUE = re.compile(r"[A-Za-z0-9_.-]{1,50}", re.ASCII)
MOST_QUEUES = 50
KEPT = ("concurrent_runs", "gpu_hours", "storage_bytes", "queues", "warn_percent")
PRICES = ("gpu_hour_price", "compute_hour_price", "label_minute_price", "currency")


def make_amount_field(label: str, most: float, help_text: str, unit: str) -> forms.FloatField:
    errors = {"invalid": f"Enter {unit}, such as 40 or 2.5, or leave empty for no limit.", "max_value": f"At most {most:,.0f}."}
    errors["min_value"] = "Enter 0 or more, or leave empty."
    widget = forms.TextInput(attrs={"inputmode": "decimal", "autocomplete": "off"})
    return forms.FloatField(label=label, required=False, min_value=0, max_value=most, help_text=help_text, error_messages=errors, widget=widget)


class QuotaForm(forms.Form):
    concurrent_runs = forms.IntegerField(
        label="Concurrent runs",
        required=False,
        min_value=0,
        max_value=MOST_RUNS,
        help_text="How many runs may train at the same time; others wait in the queue. 0 lets no run start.",
        error_messages={"invalid": "Enter a whole number, or leave empty for no limit.", "min_value": "Enter 0 or more."},
        widget=forms.TextInput(attrs={"inputmode": "numeric", "autocomplete": "off"}),
    )
    gpu_hours = make_amount_field("GPU-hours per month", MOST_HOURS, "Per calendar month (UTC). Workers without a GPU do not count.", "hours")
    storage = make_amount_field("Storage, GiB", MOST_GIB, "Checkpoints, spools, datasets and the team's share of the database.", "GiB")
    queues = forms.CharField(
        label="Queues",
        required=False,
        max_length=2000,
        help_text="Celery queues that its runs may use, separated by commas.",
        widget=forms.TextInput(attrs={"autocomplete": "off", "spellcheck": "false"}),
    )
    warn_percent = forms.IntegerField(
        label="Warn at, %",
        min_value=1,
        max_value=100,
        help_text="Share of a limit from which people are warned.",
        error_messages={"required": "Enter a share from 1 to 100; the default is 80.", "invalid": "Enter a whole number from 1 to 100."},
        widget=forms.TextInput(attrs={"inputmode": "numeric", "autocomplete": "off"}),
    )
    gpu_hour_price = make_amount_field("Price per GPU-hour", MOST_PRICE, "", "prices")
    compute_hour_price = make_amount_field("Price per CPU worker hour", MOST_PRICE, "", "prices")
    label_minute_price = make_amount_field("Price per label minute", MOST_PRICE, "", "prices")
    currency = forms.RegexField(
        r"^[A-Za-z]{3}$", label="Currency", help_text="Three letters.", error_messages={"invalid": "Enter three letters, such as EUR or USD."}
    )

    @classmethod
    def of(cls, quota: Quota, data: Any = None) -> QuotaForm:
        initial = {name: getattr(quota, name) for name in (*KEPT, *PRICES) if name not in ("queues", "storage_bytes")}
        initial["queues"] = ", ".join(quota.queues or [])
        initial["storage"] = None if quota.storage_bytes is None else round(quota.storage_bytes / GIB, 3)
        return cls(data, initial={name: simplify_number(value) for name, value in initial.items()})

    @property
    def limits(self) -> list[Any]:
        return [self[name] for name in ("concurrent_runs", "gpu_hours", "storage", "queues", "warn_percent")]

    @property
    def prices(self) -> list[Any]:
        return [self[name] for name in PRICES]

    def clean_queues(self) -> list[str] | None:
        names = list(dict.fromkeys(name for name in re.split(r"[,\s]+", self.cleaned_data["queues"]) if name))
        if wrong := [name for name in names if not QUEUE.fullmatch(name)]:
            raise ValidationError(f"“{wrong[0][:50]}” is not a queue name: use letters, digits, dots, dashes and underscores, at most 50.")
        if len(names) > MOST_QUEUES:
            raise ValidationError(f"These are {len(names)} queues. Enter at most {MOST_QUEUES}.")
        return names or None

    def clean_currency(self) -> str:
        return str(self.cleaned_data["currency"]).upper()

    def save(self, quota: Quota) -> dict[str, list[Any]]:
        """Writes the row; what changed, as field → [before, after]."""
        values = {name: self.cleaned_data[name] for name in (*KEPT, *PRICES) if name != "storage_bytes"}
        storage = self.cleaned_data["storage"]
        values["storage_bytes"] = None if storage is None else round(storage * GIB)
        changed = {name: [getattr(quota, name), value] for name, value in values.items() if getattr(quota, name) != value}
        for name, value in values.items():
            setattr(quota, name, value)
        quota.save()
        return changed


def simplify_number(value: Any) -> Any:
    """40.0 as 40, so that the form shows what was typed."""
    return int(value) if isinstance(value, float) and value == int(value) else value
