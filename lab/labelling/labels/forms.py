"""What a person fills in to make a queue and to change it. Every error stands at its field and says what to do; nothing typed is lost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django import forms
from django.utils import timezone

from lab.labelling.labels.guidelines import MOST as MOST_GUIDELINES
from lab.labelling.labels.models import Kind, Queue, Rationale, SkipHandling, Strategy
from lab.labelling.labels.recipe import MOST_ITEMS, OF_ONE, PAIRED, PairSource, PolicySide, Recipe, StepWindow
from lab.lib.numbers import MAX_INTEGER
from lab.lib.refusals import Refusal
from lab.rollouts.browse.selection import Selection
from lab.rollouts.trajectories.steps import PHASE_LABELS
from lab.teams.accounts import projects
from lab.teams.accounts.models import Project, Team

MOST_PEOPLE = 100  # labels an item may get
MOST_GOLD = 1000
GOLD_KINDS = (Kind.PAIR, Kind.SINGLE)


class LabForm(forms.Form):
    """Fields that a script and a screen reader can tie to their errors, and words that are cleaned of what PostgreSQL cannot hold."""

    def add_error(self, field: str | None, error: Any) -> None:
        super().add_error(field, error)
        for name in self._errors or ():  # type: ignore[attr-defined]
            if name in self.fields:
                self.fields[name].widget.attrs |= {"aria-invalid": "true", "aria-describedby": f"id_{name}_error"}


def make_number_field(least: int, most: int, initial: int | None, *, required: bool = True, help_text: str = "") -> forms.IntegerField:
    messages = {
        "required": f"Enter a whole number from {least:,} to {most:,}.",
        "invalid": f"Enter a whole number from {least:,} to {most:,}.",
        "min_value": f"At least {least:,}.",
        "max_value": f"At most {most:,}.",
    }
    return forms.IntegerField(min_value=least, max_value=most, initial=initial, required=required, help_text=help_text, error_messages=messages)


def make_choice_field(choices: Any, initial: str, help_text: str = "") -> forms.ChoiceField:
    messages = {"invalid_choice": "“%(value)s” is not available. Choose one from the list.", "required": "Choose one from the list."}
    return forms.ChoiceField(choices=choices, initial=initial, help_text=help_text, error_messages=messages)


def make_switch_field(initial: bool, label: str, help_text: str = "") -> forms.BooleanField:
    return forms.BooleanField(required=False, initial=initial, label=label, help_text=help_text)


class RecipeForm(LabForm):
    """Which items. ``components`` are the reward functions of the selection's runs."""

    selection = forms.CharField(required=False, max_length=8000, widget=forms.HiddenInput)
    kind = make_choice_field(Kind.choices, Kind.PAIR)
    how = make_choice_field(PairSource.choices, PairSource.GROUP)
    strategy = make_choice_field(Strategy.choices, Strategy.RANDOM)
    most = make_number_field(1, MOST_ITEMS, 200)
    per = make_number_field(0, 1000, 1, help_text="0: no limit.")
    phase = make_choice_field([("", "Any phase"), *PHASE_LABELS.items()], "")
    early_from = make_number_field(0, MAX_INTEGER, None, required=False)
    early_to = make_number_field(0, MAX_INTEGER, None, required=False)
    late_from = make_number_field(0, MAX_INTEGER, None, required=False)
    late_to = make_number_field(0, MAX_INTEGER, None, required=False)
    a_run = make_number_field(1, MAX_INTEGER, None, required=False)
    a_step = make_number_field(0, MAX_INTEGER, None, required=False)
    b_run = make_number_field(1, MAX_INTEGER, None, required=False)
    b_step = make_number_field(0, MAX_INTEGER, None, required=False)
    gold = make_number_field(0, MOST_GOLD, 0)
    gold_by = forms.ChoiceField(
        required=False, error_messages={"invalid_choice": "No run of the selection has this reward function. Choose one from the list."}
    )
    judge_by = forms.ChoiceField(
        required=False, error_messages={"invalid_choice": "No run of the selection has this reward function. Choose one from the list."}
    )
    gold_again = make_number_field(0, MOST_GOLD, 0)
    gold_from = forms.ChoiceField(
        required=False, error_messages={"invalid_choice": "Your team has no such queue with answered gold items. Choose one from the list."}
    )
    seed = make_number_field(0, MAX_INTEGER, 0)

    def __init__(self, data: Any, components: Sequence[str], runs: Sequence[int], gold_queues: Sequence[Queue] = ()) -> None:
        self.runs = frozenset(runs)  # numbers of the team's runs
        super().__init__(data)
        self.fields["phase"].required = False
        gold_by: Any = self.fields["gold_by"]
        gold_by.choices = [("", "Choose one"), *((name, name) for name in components)]
        judge_by: Any = self.fields["judge_by"]
        judge_by.choices = [("", "None"), *((name, name) for name in components)]
        gold_from: Any = self.fields["gold_from"]
        gold_from.choices = [("", "All earlier queues"), *((str(queue.pk), queue.name) for queue in gold_queues)]
        self.fields["gold_again"].required = False

    def clean(self) -> dict[str, Any]:
        data = super().clean() or self.cleaned_data
        kind, how = data.get("kind"), data.get("how")
        if kind == Kind.SINGLE and data.get("strategy") not in (*OF_ONE, None):
            self.add_error("strategy", "A single answer has no reward gap. Choose random or highest entropy.")
        if kind in PAIRED and how == PairSource.TIME:
            self.check_windows(data)
        if kind in PAIRED and how == PairSource.RUNS:
            self.check_sides(data)
        data["gold_again"] = data.get("gold_again") or 0
        if data.get("gold") or data["gold_again"]:
            self.check_gold(data)
        return data

    def check_windows(self, data: dict[str, Any]) -> None:
        for name in ("early", "late"):
            first, last = data.get(f"{name}_from"), data.get(f"{name}_to")
            for end, value in (("from", first), ("to", last)):
                if value is None and f"{name}_{end}" not in self.errors:
                    self.add_error(f"{name}_{end}", "Enter a step.")
            if first is not None and last is not None and last < first:
                self.add_error(f"{name}_to", f"This is before the first step of the window. Enter {first} or more.")
        early, late = data.get("early_to"), data.get("late_from")
        if early is not None and late is not None and late <= early:
            self.add_error("late_from", f"The late window starts before the early one ends. Enter {early + 1} or more.")

    def check_sides(self, data: dict[str, Any]) -> None:
        for name in ("a_run", "b_run"):
            if name in self.errors:
                continue
            if data.get(name) is None:
                self.add_error(name, "Enter a run number.")
            elif data[name] not in self.runs:
                self.add_error(name, f"Your team has no run #{data[name]}. Enter the number of one of its runs.")
        same = data.get("a_run") is not None and data.get("a_run") == data.get("b_run")
        if same and (data.get("a_step") == data.get("b_step") or None in (data.get("a_step"), data.get("b_step"))):
            self.add_error("b_step", "Both sides are the same run: enter a different step for each.")

    def check_gold(self, data: dict[str, Any]) -> None:
        if data.get("kind") not in (*GOLD_KINDS, None):
            self.add_error("gold" if data.get("gold") else "gold_again", "Only pairs and single answers can be gold. Set this to 0.")
        elif (data.get("gold") or 0) + data["gold_again"] >= (data.get("most") or MOST_ITEMS):
            name = "gold" if data.get("gold") else "gold_again"
            self.add_error(name, f"Gold items are part of the {data['most']:,} items, most of which should be real questions. Enter fewer.")
        elif data.get("gold") and not data.get("gold_by") and "gold_by" not in self.errors:
            self.add_error("gold_by", "Choose the reward function that determines right and wrong.")

    def recipe(self, selection: Selection) -> Recipe:
        """Of a form that is valid."""
        data = self.cleaned_data
        kind, how = Kind(data["kind"]), PairSource(data["how"])
        how = how if kind in PAIRED else PairSource.GROUP
        windows = [StepWindow(data[f"{name}_from"], data[f"{name}_to"]) for name in ("early", "late")] if how == PairSource.TIME else [None, None]
        sides = [PolicySide(data[f"{name}_run"], data[f"{name}_step"]) for name in ("a", "b")] if how == PairSource.RUNS else [None, None]
        return Recipe(
            selection=selection,
            kind=kind,
            how=how,
            strategy=Strategy(data["strategy"]),
            seed=data["seed"],
            most=data["most"],
            per=data["per"],
            early=windows[0],
            late=windows[1],
            a=sides[0],
            b=sides[1],
            phase=data["phase"],
            gold=data["gold"],
            gold_by=data["gold_by"] if data["gold"] else "",
            judge_by=data["judge_by"] if data["strategy"] == Strategy.DISAGREEMENT else "",
            gold_again=data["gold_again"],
            gold_from=int(data["gold_from"]) if data["gold_again"] and data["gold_from"] else None,
        )


class QueueForm(LabForm):
    """How a queue is worked on. Field names are those of Queue, besides ``trust`` (per cent) and ``people``."""

    name = forms.CharField(max_length=100, error_messages={"required": "Enter a name for the queue.", "max_length": "At most 100 characters."})
    project = forms.CharField(required=False, max_length=20)
    guidelines = forms.CharField(
        required=False,
        max_length=MOST_GUIDELINES,
        widget=forms.Textarea(attrs={"rows": 8}),
        error_messages={"max_length": f"At most {MOST_GUIDELINES:,} characters."},
    )
    overlap = make_number_field(1, MOST_PEOPLE, 1)
    lock_minutes = make_number_field(1, 1440, 15)
    skipping = make_choice_field(SkipHandling.choices, SkipHandling.OTHERS)
    due = forms.DateTimeField(
        required=False,
        widget=forms.DateTimeInput(attrs={"type": "datetime-local"}, format="%Y-%m-%dT%H:%M"),
        error_messages={"invalid": "Enter a date and time in UTC."},
    )
    assigned_only = make_choice_field([("", "Everyone in the team"), ("on", "Only assigned people")], "")
    people = forms.TypedMultipleChoiceField(
        required=False, coerce=int, error_messages={"invalid_choice": "One of these people is no longer in the team. Choose again."}
    )
    blind = make_switch_field(True, "Blind", "Run, step and reward are hidden while labelling.")
    strength = make_switch_field(True, "Strength 1 to 3", "How much better the chosen answer is.")
    rationale = make_choice_field(
        [(Rationale.NONE, "Not asked"), (Rationale.OPTIONAL, "Optional"), (Rationale.REQUIRED, "Required")], Rationale.OPTIONAL
    )
    correction = make_switch_field(False, "Corrected answer", "Labellers can write a corrected answer.")
    steps = make_switch_field(False, "Reasoning steps", "Good, bad or neutral for each step of a single answer.")
    spans = make_switch_field(False, "Token spans", "Good and bad spans of a single answer.")
    reviewed = make_switch_field(False, "Review required", "A label counts only after a reviewer has accepted it.")
    trust = make_number_field(1, 100, None, required=False, help_text="Percentage of gold items right. Leave empty to never pause anyone.")
    trust_after = make_number_field(1, MOST_GOLD, 10)

    def __init__(
        self, data: Any, team: Team, choices: Sequence[tuple[int, str]], queue: Queue | None = None, initial: dict[str, Any] | None = None
    ) -> None:
        self.team, self.queue = team, queue
        super().__init__(data, initial=initial)
        people: Any = self.fields["people"]
        people.choices = choices
        self.fields["assigned_only"].required = False
        if queue is not None:
            del self.fields["project"]  # a queue that exists is moved from its page

    @property
    def project_choices(self) -> list[Project]:
        return projects.list_project_choices(self.team, self["project"].value())

    def clean_project(self) -> Project | None:
        try:
            return projects.parse_project(self.team, self.cleaned_data["project"])
        except Refusal as error:
            raise forms.ValidationError(str(error)) from None

    def clean_name(self) -> str:
        return " ".join(self.cleaned_data["name"].split())

    def clean_due(self) -> Any:
        due = self.cleaned_data["due"]
        if due and due < timezone.now() and not (self.queue and self.queue.due == due):
            raise forms.ValidationError("This time is in the past. Enter a future time in UTC.")
        return due

    def clean(self) -> dict[str, Any]:
        data = super().clean() or self.cleaned_data
        if data.get("assigned_only") and not data.get("people") and "people" not in self.errors:
            self.add_error("people", "Choose at least one person, or open the queue to everyone.")
        return data

    def fields_of_queue(self) -> dict[str, Any]:
        """Of a form that is valid: what Queue stores."""
        fields = dict(self.cleaned_data)
        fields.pop("people")
        trust = fields.pop("trust")
        return {**fields, "assigned_only": bool(fields["assigned_only"]), "min_trust": None if trust is None else trust / 100}


def initial_of(queue: Queue) -> dict[str, Any]:
    names = ("name", "guidelines", "overlap", "lock_minutes", "skipping", "due", "blind", "strength", "rationale", "correction", "steps", "spans")
    initial = {name: getattr(queue, name) for name in (*names, "reviewed", "trust_after")}
    initial |= {"assigned_only": "on" if queue.assigned_only else "", "trust": None if queue.min_trust is None else round(queue.min_trust * 100)}
    initial["project"] = str(queue.project_id or "")
    return {**initial, "people": list(queue.members.filter(labels=True).values_list("user_id", flat=True)) if queue.assigned_only else []}
