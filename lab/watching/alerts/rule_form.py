"""The form of an alert rule."""

from __future__ import annotations

import math
from typing import Any

from django import forms
from django.db.models import Max

from lab.lib.numbers import MAX_INTEGER, parse_whole_number
from lab.teams.accounts.models import Project, Team, User
from lab.teams.accounts.permissions import is_role_allowed
from lab.training.runs import metrics
from lab.training.runs.models import Run
from lab.watching.alerts.kinds import FLAT, KINDS, METRIC, ON_METRICS
from lab.watching.alerts.models import Direction, Rule, Webhook

MAX_STEPS = 10_000_000
NUMBER = {"inputmode": "decimal", "autocomplete": "off"}
PLAIN = {"autocomplete": "off", "spellcheck": "false"}
NO_NUL = "This contains a character that cannot be stored. Type it again."


def number_field(label: str, **more: Any) -> forms.FloatField:
    errors = {"invalid": "Enter a number, such as 0.5 or -2."}
    return forms.FloatField(label=label, required=False, widget=forms.TextInput(attrs=NUMBER), error_messages=errors, **more)


class RuleForm(forms.Form):
    """``owner`` None: a rule of the team, which may call a webhook."""

    kind = forms.ChoiceField(label="Notify me about", error_messages={"invalid_choice": "Choose one from the list."})
    metric = forms.CharField(label="Metric", required=False, max_length=200, widget=forms.TextInput(attrs={**PLAIN, "list": "metric-names"}))
    direction = forms.ChoiceField(label="Condition", required=False, choices=Direction.choices)
    number = number_field("Threshold")
    band = number_field("Stays within", help_text="The difference between the largest and the smallest value.")
    steps = forms.IntegerField(
        label="Number of steps",
        required=False,
        min_value=2,
        max_value=MAX_STEPS,
        widget=forms.TextInput(attrs={"inputmode": "numeric", "autocomplete": "off"}),
        error_messages={"invalid": "Enter a whole number, such as 200.", "min_value": "Enter 2 or more."},
    )
    run = forms.CharField(label="Only run", required=False, max_length=12, widget=forms.TextInput(attrs={**PLAIN, "placeholder": "#12"}))
    words = forms.CharField(label="Name contains", required=False, max_length=100, widget=forms.TextInput(attrs=PLAIN))
    recipe = forms.ChoiceField(label="Recipe", required=False)
    project = forms.ModelChoiceField(Project.objects.none(), label="Project", required=False, empty_label="Any project")
    mine = forms.BooleanField(label="Only mine", required=False)
    inbox = forms.BooleanField(label="Inbox", required=False)
    email = forms.BooleanField(label="E-mail", required=False)
    webhook = forms.ModelChoiceField(Webhook.objects.none(), label="Webhook", required=False, empty_label="None")

    def __init__(
        self, data: Any, *, team: Team, owner: User | None, role: str, rule: Rule | None = None, initial: dict[str, Any] | None = None
    ) -> None:
        super().__init__(data, initial=build_rule_initial(rule) if rule else {"inbox": True, "mine": owner is not None, **(initial or {})})
        self.team, self.owner = team, owner
        self.kinds = [kind for kind in KINDS.values() if kind.ruled and is_role_allowed(role, kind.permission)]
        set_field_choices(self.fields["kind"], [(kind.name, kind.words) for kind in self.kinds])
        recipes = Run.objects.of(team).order_by().values_list("recipe", flat=True).distinct()
        set_field_choices(self.fields["recipe"], [("", "Any recipe"), *((name, name) for name in sorted(recipes))])
        self.fields["project"].queryset = Project.objects.of(team).order_by("name")  # type: ignore[attr-defined]
        if owner is None:
            del self.fields["mine"]
            self.fields["kind"].label = "Notify the team about"
            self.fields["webhook"].queryset = Webhook.objects.filter(team=team)  # type: ignore[attr-defined]
        else:
            del self.fields["webhook"]

    def metric_names(self) -> list[str]:
        """Of the run that is named, else of the team's newest run with metrics: what the metric's field suggests."""
        number = parse_whole_number(str(self["run"].value() or "").lstrip("#"), MAX_INTEGER)
        runs = Run.objects.of(self.team).filter(step__gt=0)
        run = (runs.order_by("-created_at") if number is None else runs.filter(number=number)).first()
        return metrics.list_metric_names(run.pk) if run else []

    def clean_run(self) -> Run | None:
        text = self.cleaned_data["run"].strip().lstrip("#")
        if not text:
            return None
        run = Run.objects.of(self.team).filter(number=parse_whole_number(text, MAX_INTEGER) or 0).first()
        if run is None:
            newest = Run.objects.of(self.team).aggregate(newest=Max("number"))["newest"]
            raise forms.ValidationError(
                f"There is no such run. Enter its number, 1 to {newest}." if newest else "The team has no runs yet. Leave this empty."
            )
        return run

    def clean(self) -> dict[str, Any]:
        data = super().clean() or {}
        kind = data.get("kind")
        about = KINDS[kind].about if kind is not None and kind in KINDS else ""
        if about != "run":  # fields that are hidden say nothing
            data |= {"run": None, "recipe": ""}
        if about == "team":
            data |= {"words": "", "project": None, "mine": False}
        if kind in ON_METRICS:
            self.check_metric(kind, data)
        else:
            data |= {"metric": "", "direction": "", "number": None, "steps": None}
        if not (data.get("inbox") or data.get("email") or data.get("webhook")):
            self.add_error("inbox", "Choose at least one channel.")
        return data

    def check_metric(self, kind: str, data: dict[str, Any]) -> None:
        if not data.get("metric") and "metric" not in self.errors:
            self.add_error("metric", "Enter a metric, such as reward.")
        name = "number" if kind == METRIC else "band"
        value = data.get(name)
        if name not in self.errors and (value is None or not math.isfinite(value) or (kind == FLAT and value < 0)):
            self.add_error(name, "Enter a number." if kind == METRIC else "Enter 0 or a small number, such as 0.01.")
        if kind == FLAT:
            data |= {"number": value, "direction": ""}
            if data.get("steps") is None and "steps" not in self.errors:
                self.add_error("steps", "Enter the number of steps, such as 200.")
        else:
            data["steps"] = None
            if not data.get("direction"):
                self.add_error("direction", "Choose above or below.")

    def rule(self, rule: Rule | None = None) -> Rule:
        """The rule as the form says it, not saved. ``rule``: the one that is changed."""
        saved = rule or Rule(team=self.team, owner=self.owner)
        for name in ("kind", "metric", "direction", "number", "steps", "run", "words", "recipe", "project", "mine", "inbox", "email", "webhook"):
            setattr(saved, name, self.cleaned_data.get(name, False if name == "mine" else None))
        return saved


def set_field_choices(field: forms.Field, choices: list[tuple[str, str]]) -> None:
    field.choices = choices  # type: ignore[attr-defined]


def build_rule_initial(rule: Rule) -> dict[str, Any]:
    names = ("kind", "metric", "direction", "words", "recipe", "project", "mine", "inbox", "email", "webhook", "steps")
    initial = {name: getattr(rule, name) for name in names}
    initial |= {"band": rule.number} if rule.kind == FLAT else {"number": rule.number}
    return {**initial, "run": f"#{rule.run.number}" if rule.run else ""}
