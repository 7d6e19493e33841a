"""The parts of the launch form that are forms of their own: a stage, where the policy comes from, and what saves it all as a recipe."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from django.forms import BoundField, Select, TextInput

from lab.training.catalog.catalog import Catalog
from lab.training.catalog.models import NAME_LENGTH, NOTE_LENGTH
from lab.training.runs.composer import StackForm
from lab.training.runs.drafts import Spec
from lab.training.runs.schema_form import build_schema_fields
from lab.training.runs.spec_fields import NO_AUTOFILL, ChoiceField, TextField
from lab.training.runs.spec_form import SpecForm
from trainers.contract.spec import FINAL

CODE = {**NO_AUTOFILL, "spellcheck": "false"}
Choices = Callable[[], list[tuple[str, str]]]


class Stage:
    """The part of the form that each stage has for itself. ``spec``: what the form started with."""

    def __init__(self, catalog: Catalog, number: int, title: str, data: Mapping[str, Any] | None, spec: Spec) -> None:
        self.number, self.title, self.spec, self.trainer = number, title, spec, str(spec["training"]["trainer"])
        entry, evaluation = catalog.trainer(self.trainer), catalog.schema["$defs"]["Evaluation"]
        self.summary: str = entry["summary"]
        self.training = SpecForm(data, f"stages.{number}.training", spec["training"], build_schema_fields(entry["schema"]))
        self.evaluation = SpecForm(data, f"stages.{number}.evaluation", spec.get("evaluation"), build_schema_fields(evaluation))
        self.stack = StackForm(catalog, number, self.trainer, data, spec)

    @property
    def basic(self) -> list[BoundField]:
        return [bound for bound in self.training if not self.training.fields[bound.name].advanced]

    @property
    def advanced(self) -> list[BoundField]:
        return [bound for bound in self.training if self.training.fields[bound.name].advanced]

    def read_training(self) -> Spec:
        """Without what is untouched and at its default: a default that follows from other settings (the warm-up of a short run) then does follow."""
        changed = self.training.changed_data
        typed = {key: value for key, value in self.training.values.items() if key in changed or not self._starts_at_default(key)}
        return {"trainer": self.trainer} | typed

    def _starts_at_default(self, key: str) -> bool:
        return bool(self.training[key].initial == self.training.fields[key].initial)


class PolicyForm(SpecForm):
    """Which run, model of the hub or folder the policy comes from; the kind is chosen beside it."""

    hub = TextField(label="Hub id", widget=TextInput({**CODE, "placeholder": "Qwen/Qwen2.5-0.5B-Instruct"}))
    revision = TextField(label="Revision", widget=TextInput(CODE))

    def __init__(self, data: Mapping[str, Any] | None, policy: Mapping[str, Any], runs: Choices, folders: Choices) -> None:
        fields = {
            "run": ChoiceField(label="Run and checkpoint", choices=runs, widget=Select),
            "folder": ChoiceField(label="Folder", choices=folders, widget=Select),
        }
        initial = {
            "run": f"{policy['run']}:{policy.get('checkpoint', FINAL)}" if policy.get("run") else "",
            "hub": policy.get("name", ""),
            "revision": policy.get("revision", "main"),
            "folder": policy.get("folder", ""),
        }
        super().__init__(data, "policy", initial, fields)


class SaveForm(SpecForm):
    """What the recipe is saved as."""

    name = TextField(label="Recipe", max_length=NAME_LENGTH, widget=TextInput({**NO_AUTOFILL, "aria-describedby": "help-save error-save.name"}))
    note = TextField(label="Note", max_length=NOTE_LENGTH, widget=TextInput(NO_AUTOFILL))


def names_in(folder: Path, folders: bool) -> list[str]:
    if not folder.is_dir():
        return []
    return sorted(path.name for path in folder.iterdir() if not path.name.startswith(".") and path.is_dir() == folders)
