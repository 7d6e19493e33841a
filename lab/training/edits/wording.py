"""Edits in words: what changed from what to what, by whom and from which step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lab.training.edits.editable import title_of_setting
from lab.training.edits.models import EditState, RunEdit
from trainers.contract.edits import BETA, HUMAN_WEIGHT, LEARNING_RATE, MIX, REWARD, TEMPERATURE

ORDER = (LEARNING_RATE, BETA, TEMPERATURE, REWARD, HUMAN_WEIGHT, MIX)


@dataclass(frozen=True)
class EditedSetting:
    """``step``: the first one that trained with it; None while it does not hold."""

    name: str
    before: float | None
    after: float
    step: int | None

    @property
    def title(self) -> str:
        return title_of_setting(self.name)

    @property
    def words(self) -> str:
        return f"{self.title} {format_edit_value(self.before)} → {format_edit_value(self.after)}"


def list_edited_settings(edit: RunEdit) -> list[EditedSetting]:
    """In the order of the form: the database keeps none."""
    names = sorted(edit.changes, key=lambda name: (next((place for place, start in enumerate(ORDER) if name.startswith(start)), len(ORDER)), name))
    return [EditedSetting(name, edit.before.get(name), edit.changes[name], edit.steps.get(name)) for name in names]


def format_edit_value(value: Any) -> str:
    return "?" if value is None else f"{value:.10g}"


def name_author(edit: RunEdit) -> str:
    return str(edit.author) if edit.author else "a service token" if edit.reason else "the run folder"


def describe_edit_state(edit: RunEdit) -> str:
    """Where the edit stands, as a phrase."""
    if edit.state == EditState.APPLIED:
        return "applied"
    if edit.state != EditState.PENDING:
        return edit.get_state_display()
    if edit.withdrawn_at:
        return "withdrawing"
    if edit.steps:
        return "partly applied, the rest applies from the next generation batch"
    return "pending, applies at the next step" if edit.run.is_active else f"pending, applies when the run is resumed ({edit.run.status})"


def summarize_edit(edit: RunEdit) -> str:
    """One line: ``learning rate 0.0003 → 0.0001 from step 12``."""
    parts = [f"{setting.words}{'' if setting.step is None else f' from step {setting.step}'}" for setting in list_edited_settings(edit)]
    return "; ".join(parts)
