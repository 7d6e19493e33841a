"""The tasks that the launch form offers, each a form of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping
from functools import partial
from typing import Any

from django.forms import BoundField
from django.template.loader import render_to_string
from django.utils.safestring import SafeString

from lab.training.catalog.catalog import Catalog
from lab.training.runs.drafts import Spec
from lab.training.runs.schema_form import build_schema_fields
from lab.training.runs.spec_fields import NO_AUTOFILL, ChoiceField, FloatField, SpecField
from lab.training.runs.spec_form import SpecForm
from lab.training.runs.team_tasks import TeamTask

REWARDS = "rewards."
OPTIONS = "options."


class TaskForms:
    """The team's tasks ``own`` and those of the catalogue, by key in the order of the page. ``chosen``: the task of a spec; ``drafted``: the one of
    the team's that it is. A form is made when it is first asked for: a spec needs that of the chosen task alone.
    """

    def __init__(
        self, catalog: Catalog, data: Mapping[str, Any] | None, chosen: Mapping[str, Any], own: Mapping[str, TeamTask], drafted: TeamTask | None
    ) -> None:
        self.makers: dict[str, Callable[[], TaskForm]] = {
            task.key: partial(TaskForm, task.entry, data, chosen if task is drafted else {}, task) for task in own.values()
        }
        named = {} if chosen.get("file") else chosen
        for entry in catalog.tasks:
            spec = named if entry["name"] == named.get("name") else {}
            self.makers[entry["name"]] = partial(TaskForm, entry, data, spec, bodies=catalog.task_bodies)
        self.made: dict[str, TaskForm] = {}

    def find(self, key: str) -> TaskForm | None:
        if key in self.makers and key not in self.made:
            self.made[key] = self.makers[key]()
        return self.made.get(key)

    def list_all(self) -> list[TaskForm]:
        return [task for task in map(self.find, self.makers) if task is not None]


class TaskForm(SpecForm):
    """A task of the catalogue, or the team's ``own``, with its inputs for difficulty and reward weights. ``chosen``: the task of a spec, where it
    is this one. ``key`` is the value of the input that chooses it.
    """

    def __init__(
        self,
        entry: Mapping[str, Any],
        data: Mapping[str, Any] | None,
        chosen: Mapping[str, Any],
        own: TeamTask | None = None,
        bodies: MutableMapping[str, SafeString] | None = None,
    ) -> None:
        self.entry, self.own = entry, own
        self.bodies = bodies if data is None and not chosen else None
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

    @property
    def body(self) -> SafeString:
        """What the page shows once the task is chosen. Of an untouched task it is always the same, and most of the form: it is written once for
        all forms (``Catalog.task_bodies``).
        """
        if self.bodies is None:
            return self.render_body()
        if self.key not in self.bodies:
            self.bodies[self.key] = self.render_body()
        return self.bodies[self.key]

    def render_body(self) -> SafeString:
        return render_to_string("runs/task_body.html", {"option": self})

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
