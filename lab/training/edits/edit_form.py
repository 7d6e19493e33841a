"""The form of an edit: an input for each setting that can be changed now, with its bounds and help from the parameters' schema."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.forms import BoundField, HiddenInput, Textarea

from lab.lib.refusals import InputRefusal, Problem
from lab.training.catalog.catalog import load_catalog
from lab.training.edits.editable import EditSheet
from lab.training.edits.verbs import REASON_LENGTH
from lab.training.edits.wording import format_edit_value
from lab.training.runs.schema_form import build_schema_fields
from lab.training.runs.spec_fields import NO_AUTOFILL, FloatField, SpecField, TextField
from lab.training.runs.spec_form import SpecForm
from lab.training.runs.team_tasks import find_spec_task
from trainers.contract.edits import HUMAN_WEIGHT, LEARNING_RATE, MIX, MOST_MIX, PER_STEP, REWARD
from trainers.contract.reward_definitions import SHADOW

REASON, TOKEN, SEEN = "reason", "token", "seen"
LONGEST_SEEN = 50_000  # characters
PROMOTION = "Only measured so far. With a weight it becomes one of the run's rewards, and stays one."
SCHEDULE = "The new peak of the schedule: warm-up and decay continue in proportion."


@dataclass(frozen=True)
class FieldGroup:
    """Inputs under one heading; ``note`` says from when they hold."""

    title: str
    note: str
    fields: list[BoundField]


class EditForm(SpecForm):
    """Its inputs hold what the run will train with once edits that wait are applied.

    A hidden input remembers those values, so that what somebody else edits while the form is open is neither undone nor overwritten unseen.
    """

    def __init__(self, sheet: EditSheet, data: Mapping[str, Any] | None = None, token: str = "") -> None:
        self.sheet = sheet
        fields = {name: build_setting_field(sheet, name) for name in sheet.settings.launched}
        reason = TextField(
            label="Reason", required=True, max_length=REASON_LENGTH, widget=Textarea({"rows": 2, "maxlength": REASON_LENGTH, **NO_AUTOFILL})
        )
        reason.help_text = "Stored with the edit and shown at its mark on every chart."
        more: dict[str, SpecField] = {REASON: reason, TOKEN: TextField(widget=HiddenInput), SEEN: TextField(widget=HiddenInput)}
        seen = json.dumps(sheet.expected)
        super().__init__(data, "", {**sheet.expected, TOKEN: token, SEEN: seen}, fields | more)
        self.seen = sheet.expected if data is None else read_seen_values(self.values[SEEN] or "", sheet.expected)
        if not self.is_unsent:
            self._take_over_edits(seen)

    def _take_over_edits(self, seen: str) -> None:
        """Inputs that nobody touched show what somebody else's edit made of them meanwhile."""
        moved = {name: value for name, value in self.sheet.expected.items() if value != self.seen.get(name)}
        self.overtaken = [name for name in moved if self.values.get(name) not in (self.seen.get(name), moved[name])]
        shown = {name: self.fields[name].prepare_value(value) for name, value in moved.items() if name in self.fields and name not in self.overtaken}
        self.data = {**self.data, **shown, SEEN: seen}
        self.full_clean()

    @property
    def groups(self) -> list[FieldGroup]:
        """Only those with inputs."""
        batch = "Applies from the next generation batch."
        found = [
            FieldGroup("Optimizer", "Applies from the next optimizer step.", self._pick(lambda name: name in PER_STEP)),
            FieldGroup("Sampling", batch, self._pick(lambda name: name not in PER_STEP and not name.startswith((REWARD, MIX, HUMAN_WEIGHT)))),
            FieldGroup(
                "Reward weights",
                f"{batch} Held-out rewards are weighted by them too.",
                self._pick(lambda name: name.startswith((REWARD, HUMAN_WEIGHT))),
            ),
            FieldGroup("Prompt mix", f"{batch} A group's prompt is drawn by these weights.", self._pick(lambda name: name.startswith(MIX))),
        ]
        return [group for group in found if group.fields]

    def _pick(self, wanted: Any) -> list[BoundField]:
        return [self[name] for name in self.sheet.settings.launched if wanted(name)]

    def read_changes(self) -> dict[str, float]:
        """The settings that were changed. Raises InputRefusal for what is no number."""
        found, problems = dict[str, float](), list[Problem]()
        for name in self.sheet.settings.launched:
            value = self.values[name]
            if isinstance(value, str) or value is None:
                problems.append(Problem(name, "Enter a number."))
            elif name in self.overtaken:
                now = format_edit_value(self.sheet.expected[name])
                problems.append(Problem(name, f"An edit changed it to {now} while this form was open. Apply again to replace that."))
            elif value != self.sheet.expected[name]:
                found[name] = float(value)
        if problems:
            raise InputRefusal(problems)
        return found

    def refuse(self, refusal: InputRefusal) -> None:
        """Shows each problem at its input; what has none stands on top."""
        for problem in refusal.problems:
            self.add_error(problem.field if problem.field in self.fields else None, problem.message)


def read_seen_values(text: str, expected: Mapping[str, float]) -> Mapping[str, float]:
    """Setting -> the value the form was opened with; today's where the text is not what a form of ours holds."""
    try:
        found = json.loads(text) if len(text) <= LONGEST_SEEN else None
    except (ValueError, RecursionError):
        found = None
    return found if isinstance(found, dict) and all(type(value) in (int, float) for value in found.values()) else expected


def build_setting_field(sheet: EditSheet, name: str) -> SpecField:
    """``name``: a setting of ``trainers.contract.edits``."""
    catalog = load_catalog()
    assert sheet.spec is not None
    key = name.rpartition(".")[2]
    if name == HUMAN_WEIGHT:
        made = build_schema_fields(catalog.schema["$defs"]["HumanReward"])[key]
        made.label = "human"
        return made
    if name.startswith(REWARD):
        key = name.removeprefix(REWARD)
        if any(column.name == key and column.shadow for column in sheet.spec.rewards):
            return build_weight_field(f"{key}{SHADOW}", PROMOTION)
        own = find_spec_task(sheet.run.team, sheet.run.spec)
        entry = own.entry if own else {"rewards": []} if sheet.spec.task.file else catalog.task(sheet.spec.task.name)
        summary = next((one["summary"] for one in entry["rewards"] if one["name"] == key), "")
        return build_weight_field(key, summary)
    if name.startswith(MIX):
        key = name.removeprefix(MIX)
        made = build_weight_field(key, catalog.task(sheet.spec.task.name)["difficulties"].get(key, ""))
        made.widget.attrs |= {"min": 0, "max": MOST_MIX}
        return made
    made = build_schema_fields(catalog.trainer(sheet.run.trainer)["schema"])[key]
    if name == LEARNING_RATE:
        made.help_text = f"{made.help_text} {SCHEDULE}"
    return made


def build_weight_field(label: str, help_text: str) -> FloatField:
    made = FloatField(label=label, help_text=help_text, required=True)
    made.widget.attrs |= NO_AUTOFILL
    return made
