"""The reward functions that a launch adds to the task's: columns of ``spec.rewards``, in the form and on the run's page.

Inputs: ``more`` (how many) and of each ``more.0.choice``, ``.name``, ``.weight``, ``.shadow``, ``.config.<parameter>``, or ``.definition`` (JSON with
definition and origin) of one that is kept as it was launched; ``more-add`` is what the button adds.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.forms import TextInput

from lab.lib.numbers import parse_whole_number
from lab.teams.accounts.models import Team
from lab.training.runs.models import Run
from lab.training.runs.reward_choices import LIBRARY, RewardChoice, find_known_versions, group_choices, list_reward_choices, read_origin
from lab.training.runs.reward_words import describe_stored_definition
from lab.training.runs.spec_fields import NO_AUTOFILL, FloatField, SwitchField, TextField
from lab.training.runs.spec_form import Input, SpecForm
from trainers.contract.task_files import MOST_REWARDS

KEPT = "kept"
LONGEST_NAME = 40


class ColumnForm(SpecForm):
    """A column's name, weight and switch; ``parameters`` of a function of the library are a form of their own."""

    name = TextField(label="Column", max_length=LONGEST_NAME, widget=TextInput(NO_AUTOFILL))
    weight = FloatField(label="Weight", min_value=-1000, max_value=1000, initial=1.0, required=True)
    shadow = SwitchField(label="Shadow: scored and charted, in no gradient")

    def __init__(self, data: Mapping[str, Any], number: int, choices: Mapping[str, RewardChoice], free_name: str) -> None:
        prefix = f"more.{number}"
        sent = data if f"{prefix}.name" in data else None
        super().__init__(sent, prefix, {"name": free_name, "weight": 1.0, "shadow": False})
        self.choice: str = data.get(f"{prefix}.choice", "")
        self.kept: str = data.get(f"{prefix}.definition", "")
        self.chosen = choices.get(self.choice)
        self.parameters = self.chosen.build_form(data, prefix) if self.chosen else SpecForm(None, f"{prefix}.config")
        self.title = self.chosen.title if self.chosen else ""
        self.words = self.chosen.summary if self.chosen else describe_stored_definition(self.read_definition()[0])

    @property
    def nested(self) -> list[SpecForm]:
        return [self.parameters]

    def read_definition(self) -> tuple[Any, Any]:
        """(definition, origin); what is no definition is refused by the contract."""
        if self.chosen is not None:
            return self.chosen.define(self.parameters.values), dict(self.chosen.origin) if self.chosen.origin else None
        try:
            kept = json.loads(self.kept)
            return kept["definition"], kept["origin"]
        except (ValueError, KeyError, TypeError, RecursionError):
            return {}, None

    def read_column(self) -> dict[str, Any]:
        definition, origin = self.read_definition()
        values = self.values
        return {"name": values["name"], "definition": definition, "weight": values["weight"], "shadow": bool(values["shadow"]), "origin": origin}

    def find_input(self, path: str) -> Input:
        """``path``: below the column in the spec."""
        if path in self.fields:
            return Input(self, path)
        name = path.rpartition("config.")[2].partition(".")[0]
        return Input(self.parameters, name) if ".config." in path and name in self.parameters.fields else Input(self)


class MoreRewards:
    """``data``: what a browser sent; without it the columns of a spec."""

    def __init__(self, team: Team, data: Mapping[str, Any] | None, columns: list[Any]) -> None:
        self.team = team
        self.choices = list_reward_choices(team)
        self.data = dict(data) if data is not None else write_column_inputs(self.choices, columns)
        self.error = ""
        self._read_columns()

    def _read_columns(self) -> None:
        count = parse_whole_number(str(self.data.get("more", "0")), MOST_REWARDS) or 0
        self.columns: list[ColumnForm] = []
        for number in range(count):
            choice = self.choices.get(self.data.get(f"more.{number}.choice", ""))
            taken = {column.values["name"] for column in self.columns}
            self.columns.append(ColumnForm(self.data, number, self.choices, choice.suggest_name(taken) if choice else ""))
        known = find_known_versions(self.team, [origin for column in self.columns if (origin := self._origin_of(column))])
        for column in self.columns:
            if not column.title:
                origin = self._origin_of(column)
                column.title = known[origin].label if origin in known else "As launched before"

    def _origin_of(self, column: ColumnForm) -> tuple[int, int] | None:
        return read_origin({"origin": column.read_definition()[1]}) if column.chosen is None else None

    @property
    def grouped_choices(self) -> list[tuple[str, list[RewardChoice]]]:
        return group_choices(self.choices)

    @property
    def nested(self) -> list[SpecForm]:
        return [form for column in self.columns for form in (column, column.parameters)]

    def edit(self, act: str) -> None:
        """``add`` or ``remove:<number>``. Raises ValueError for what no button says."""
        verb, _, number = act.partition(":")
        if verb == "add":
            self._add(self.data.get("more-add", ""))
        elif verb == "remove":
            self._keep([column for column in self.columns if column.prefix != f"more.{number}"])
        else:
            raise ValueError(act)

    def _add(self, key: str) -> None:
        if key not in self.choices:
            self.error = "Choose a reward function from the list."
        elif len(self.columns) >= MOST_REWARDS:
            self.error = f"A run has at most {MOST_REWARDS} more reward functions."
        else:
            self.data |= {f"more.{len(self.columns)}.choice": key, "more": str(len(self.columns) + 1)}
            self._read_columns()

    def _keep(self, columns: list[ColumnForm]) -> None:
        before = self.data
        self.data = {name: value for name, value in before.items() if not name.startswith("more.")} | {"more": str(len(columns))}
        for number, column in enumerate(columns):
            own = {name.removeprefix(str(column.prefix)): value for name, value in before.items() if name.startswith(f"{column.prefix}.")}
            self.data |= {f"more.{number}{name}": value for name, value in own.items()}
        self._read_columns()

    def list_columns(self, *, shadows: bool) -> list[ColumnForm]:
        """``shadows``: whether the stage has shadow rewards; in a chain the others go without."""
        return [column for column in self.columns if shadows or not column.values["shadow"]]


def write_column_inputs(choices: Mapping[str, RewardChoice], columns: list[Any]) -> dict[str, str]:
    """What the inputs hold for the columns of a spec. One of the team's functions keeps its version."""
    inputs = {"more": str(len(columns))}
    for number, column in enumerate(columns):
        prefix, definition = f"more.{number}", column["definition"]
        inputs |= {f"{prefix}.name": column["name"], f"{prefix}.weight": f"{column.get('weight', 1.0):g}"}
        inputs |= {f"{prefix}.shadow": "on"} if column.get("shadow") else {}
        library = choices.get(f"{LIBRARY}:{definition.get('function')}") if definition["kind"] == LIBRARY and not column.get("origin") else None
        if library is not None:
            inputs |= library.write_inputs(definition.get("config", {}), prefix)
        else:
            kept = json.dumps({"definition": definition, "origin": column.get("origin")}, ensure_ascii=False)
            inputs |= {f"{prefix}.choice": KEPT, f"{prefix}.definition": kept}
    return inputs


@dataclass(frozen=True)
class LaunchedColumn:
    """A column as the run's page shows it. ``url``: of the version, empty where it is not the team's."""

    name: str
    words: str
    weight: float
    shadow: bool
    label: str
    url: str


def list_launched_columns(run: Run) -> list[LaunchedColumn]:
    listed = run.spec.get("rewards")
    columns = [column for column in (listed if isinstance(listed, list) else []) if isinstance(column, Mapping)]
    known = find_known_versions(run.team, [origin for column in columns if (origin := read_origin(column))])
    made = []
    for column in columns:
        version = known.get(read_origin(column) or (0, 0))
        words, weight = describe_stored_definition(column.get("definition")), float(column.get("weight", 1.0))
        about = (version.label, version.url) if version else ("", "")
        made.append(LaunchedColumn(str(column.get("name", "")), words, weight, bool(column.get("shadow")), *about))
    return made
