"""The parts of the launch form that are forms of their own: a stage, a task, where the policy comes from, and what saves it all as a recipe."""

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
from lab.training.runs.spec_fields import NO_AUTOFILL, ChoiceField, FloatField, SpecField, TextField
from lab.training.runs.spec_form import SpecForm
from lab.training.runs.team_tasks import TeamTask
from trainers.contract.spec import FINAL

REWARDS = "rewards."
OPTIONS = "options."
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


class TaskForm(SpecForm):
    """A task of the catalogue, or the team's ``own``, with its inputs for difficulty and reward weights. ``chosen``: the task of a spec, where it
    is this one. ``key`` is the value of the input that chooses it.
    """

    def __init__(self, entry: Mapping[str, Any], data: Mapping[str, Any] | None, chosen: Mapping[str, Any], own: TeamTask | None = None) -> None:
        self.entry, self.own = entry, own
        self.key: str = own.key if own else entry["name"]
        difficulties: Mapping[str, str] = entry["difficulties"]
        offered = [(name, f"{name}: {words}") for name, words in difficulties.items()]
        fields: dict[str, SpecField] = {"difficulty": ChoiceField(label="Difficulty", choices=offered, initial=next(iter(difficulties)))}
        fields |= {f"{REWARDS}{reward['name']}": _build_weight_field(reward) for reward in entry["rewards"]}
        if "options" in entry:
            fields |= {f"{OPTIONS}{name}": field for name, field in build_schema_fields(entry["options"]).items()}
        options = {f"{OPTIONS}{name}": value for name, value in (chosen.get("options") or {}).items()}
        weights = {f"{REWARDS}{name}": weight for name, weight in (chosen.get("rewards") or {}).items()}
        difficulty = {"difficulty": chosen["difficulty"]} if "difficulty" in chosen else {}
        super().__init__(data, f"task.{self.key}", difficulty | options | weights, fields)

    @property
    def is_world(self) -> bool:
        return "tools" in self.entry

    @property
    def weights(self) -> list[BoundField]:
        return [bound for bound in self if bound.name.startswith(REWARDS)]

    @property
    def options(self) -> list[BoundField]:
        return [bound for bound in self if bound.name.startswith(OPTIONS)]

    def read_task(self) -> Spec:
        """With the weights and options that are not the task's own."""
        changed = [bound for bound in self.weights if bound.field.has_changed(bound.field.initial, bound.data)]
        weights = {bound.name.removeprefix(REWARDS): self.values[bound.name] for bound in changed}
        if self.own is not None:
            return self.own.spec | {"rewards": weights}
        options = {
            bound.name.removeprefix(OPTIONS): self.values[bound.name] for bound in self.options if self.values[bound.name] != bound.field.initial
        }
        chosen = {"name": self.entry["name"], "difficulty": self.values["difficulty"], "rewards": weights}
        return chosen | ({"options": options} if options else {})


def _build_weight_field(reward: Mapping[str, Any]) -> FloatField:
    made = FloatField(label=reward["name"], help_text=reward["summary"], initial=reward["weight"], required=True)
    made.widget.attrs |= NO_AUTOFILL
    return made


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
