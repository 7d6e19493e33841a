"""The form of a task: what its inputs show, and the task that they stand for. Nothing that was typed is lost when something is wrong.

Inputs: ``name``, ``note``, ``system``, ``shot_user`` and ``shot_assistant`` (in pairs), ``column_prompt``, ``column_reference``, ``after``,
``column_demonstration``, ``data`` (several), ``split``, ``share`` (percent), ``split_column``, ``heldout``, ``skip``, ``rewards`` (how many); of each
``reward.0.name``, ``.choice``, ``.weight``, ``.gate`` (the number of the column that has to score 1), ``.config.<parameter>``; of one that no choice
stands for ``.definition``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from django.http import QueryDict
from pydantic import ValidationError

from lab.data.tasks.building import TaskWish
from lab.data.tasks.models import NAME_LENGTH, NOTE_LENGTH, Task, TaskVersion
from lab.data.tasks.rows import COLUMN, SHARE, RowPlan
from lab.data.tasks.sources import Columns, guess_plan
from lab.lib.numbers import parse_whole_number
from lab.lib.refusals import Refusal
from lab.teams.accounts import projects
from lab.teams.accounts.models import Team
from lab.training.runs.reward_choices import LIBRARY, RewardChoice, find_known_versions, list_reward_choices, read_origin
from lab.training.runs.spec_form import SpecForm
from trainers.contract.reward_definitions import COLUMN_NAME, RewardColumn
from trainers.contract.task_files import LONGEST_PROMPT, MOST_EXAMPLES, MOST_REWARDS, TaskDefinition

KEPT = "kept"  # choice of a column whose definition no choice of the list stands for
MOST_WEIGHT = 1000
VALUES = re.compile(r"[,\n]")


@dataclass
class RewardInputs:
    """One column of the rewards. ``definition``: JSON text of one that is kept as it is."""

    number: int
    name: str
    choice: str
    weight: str
    form: SpecForm
    chosen: RewardChoice | None
    definition: str = ""
    gate: str = ""
    label: str = ""  # of one that is kept: the version of the team's reward function
    errors: dict[str, str] = field(default_factory=dict)

    @property
    def prefix(self) -> str:
        return f"reward.{self.number}"


class TaskForm:
    """``data``: what a browser sent. ``problems`` may be filled in by who finds more wrong than the form can know."""

    def __init__(self, team: Team, data: QueryDict, columns: Columns) -> None:
        self.team, self.data, self.columns = team, data, columns
        self.choices = list_reward_choices(team)
        self.errors: dict[str, str] = {}
        self.name, self.note, self.system = (self._text(name) for name in ("name", "note", "system"))
        self.project = data.get("project", "")
        self.shots = [(user, answer) for user, answer in zip(data.getlist("shot_user"), data.getlist("shot_assistant"), strict=False)][:MOST_EXAMPLES]
        self.share = data.get("share", "10").strip()
        self.plan = self._read_plan()
        count = parse_whole_number(data.get("rewards", "0"), MOST_REWARDS) or 0
        self.rewards = [self._read_reward(number) for number in range(count)]
        self._label_kept()

    def _label_kept(self) -> None:
        """Columns that are kept are called as the version of the team's reward function that they are."""
        origins = {reward.number: origin for reward in self.rewards if (origin := read_origin({"origin": decode_kept(reward.definition)[1]}))}
        known = find_known_versions(self.team, list(origins.values()))
        for reward in self.rewards:
            version = known.get(origins.get(reward.number, (0, 0)))
            reward.label = version.label if version else ""

    def _text(self, name: str) -> str:
        return self.data.get(name, "").replace("\0", "").replace("\r\n", "\n").strip()

    def _read_plan(self) -> RowPlan:
        data = self.data
        share = parse_share(self.share)
        return RowPlan(
            prompt=data.get("column_prompt", ""),
            reference=data.get("column_reference", ""),
            after=self._text("after"),
            demonstration=data.get("column_demonstration", ""),
            data=data.getlist("data"),
            split=data.get("split", SHARE),
            share=0.0 if share is None else share,
            split_column=data.get("split_column", ""),
            heldout=[text for one in VALUES.split(self._text("heldout")) if (text := one.strip())],
            skip=data.get("skip") == "1",
        )

    def _read_reward(self, number: int) -> RewardInputs:
        prefix, data = f"reward.{number}", self.data
        key = data.get(f"{prefix}.choice", "")
        chosen = self.choices.get(key)
        form = chosen.build_form(data, prefix) if chosen else SpecForm(None, f"{prefix}.config")
        texts = (data.get(f"{prefix}.{name}", "").strip() for name in ("name", "weight", "definition", "gate"))
        name, weight, definition, gate = texts
        return RewardInputs(number, name, key, weight, form, chosen, definition, gate)

    # What a person does to its lists.

    def edit(self, act: str) -> None:
        """Does what a button says: adds or removes an exchange or a reward. Anything else changes nothing."""
        verb, _, rest = act.partition(":")
        if verb == "shot-add" and len(self.shots) < MOST_EXAMPLES:
            self.shots.append(("", ""))
        elif verb == "shot-remove":
            self.shots = [shot for number, shot in enumerate(self.shots) if str(number) != rest]
        elif verb == "reward-add":
            self._add_reward(self.data.get("add", ""))
        elif verb == "reward-remove":
            self._renumber([reward for reward in self.rewards if str(reward.number) != rest])

    def _add_reward(self, key: str) -> None:
        if key not in self.choices:
            self.errors["add"] = "Choose a reward function from the list."
        elif len(self.rewards) >= MOST_REWARDS:
            self.errors["add"] = f"A task has at most {MOST_REWARDS} reward functions."
        else:
            number = len(self.rewards)
            data = self.data.copy()
            data[f"reward.{number}.choice"] = key
            data[f"reward.{number}.name"] = self.choices[key].suggest_name({reward.name for reward in self.rewards})
            data[f"reward.{number}.weight"] = "1" if not number else "0.2"
            self.data = data
            self.rewards.append(self._read_reward(number))

    def _renumber(self, kept: list[RewardInputs]) -> None:
        data = self.data.copy()
        for name in [name for name in data if name.startswith("reward.")]:
            del data[name]
        for number, reward in enumerate(kept):
            for name, values in self.data.lists():
                if name.startswith(f"{reward.prefix}."):
                    data.setlist(f"reward.{number}.{name.removeprefix(f'{reward.prefix}.')}", values)
        places = {str(reward.number): str(number) for number, reward in enumerate(kept)}
        for number, reward in enumerate(kept):
            data[f"reward.{number}.gate"] = places.get(reward.gate, "")
        self.data = data
        self.rewards = [self._read_reward(number) for number in range(len(kept))]
        self._label_kept()

    # What it stands for.

    def read_wish(self) -> TaskWish | None:
        """The task that is asked for; None where something is wrong, which ``errors`` then say."""
        self._check_texts()
        self._check_columns()
        columns = close_gates(self.rewards, [self._read_column(reward) for reward in self.rewards])
        if not self.rewards:
            self.errors["rewards"] = "Add a reward function: the first one is the task's accuracy."
        project = None
        try:
            project = projects.parse_project(self.team, self.project)
        except Refusal as error:
            self.errors["project"] = str(error)
        if self.errors or any(reward.errors for reward in self.rewards):
            return None
        examples = [{"user": user.strip(), "assistant": answer.strip()} for user, answer in self.shots]
        given = {"name": self.name, "system": self.system, "examples": examples, "rewards": columns}
        try:
            definition = TaskDefinition.model_validate(given)
        except ValidationError as error:
            self.errors["rewards"] = "; ".join(one["msg"] for one in error.errors()[:3])
            return None
        return TaskWish(self.name, definition.model_dump(mode="json"), self.plan, self.note[:NOTE_LENGTH], project)

    def _check_texts(self) -> None:
        if not self.name:
            self.errors["name"] = "Enter a name."
        elif len(self.name) > NAME_LENGTH:
            self.errors["name"] = f"The name has {len(self.name)} characters. Use at most {NAME_LENGTH}."
        if len(self.system) > LONGEST_PROMPT:
            self.errors["system"] = f"The system prompt has {len(self.system):,} characters. Use at most {LONGEST_PROMPT:,}."
        if any(not user.strip() or not answer.strip() for user, answer in self.shots):
            self.errors["shots"] = "An example needs both texts. Fill them in, or remove it."

    def _check_columns(self) -> None:
        plan, names = self.plan, set(self.columns.names)
        if not plan.prompt:
            self.errors["column_prompt"] = "Choose the column with the prompt."
        for field_name, column in (("prompt", plan.prompt), ("reference", plan.reference), ("demonstration", plan.demonstration)):
            if column and column not in names:
                self.errors[f"column_{field_name}"] = "The file has no such column. Choose one from the list."
        if not set(plan.data) <= names:
            self.errors["data"] = "The file does not have all of these columns. Choose from the list."
        if plan.split == SHARE:
            if parse_share(self.share) is None:
                self.errors["share"] = "Enter a share from 0 to 90 %."
        elif plan.split != COLUMN or plan.split_column not in names:
            self.errors["split_column"] = "Choose the column that says which rows are held out."
        elif not plan.heldout:
            self.errors["heldout"] = "Enter the values whose rows are held out, such as test."

    def _read_column(self, reward: RewardInputs) -> dict[str, Any] | None:
        if not re.match(COLUMN_NAME, reward.name):
            reward.errors["name"] = "Use lowercase letters, digits, - and _, with a letter first; at most 40."
        elif any(other.name == reward.name for other in self.rewards[: reward.number]):
            reward.errors["name"] = "Another column has this name."
        weight = parse_weight(reward.weight)
        if weight is None:
            reward.errors["weight"] = f"Enter a number from −{MOST_WEIGHT} to {MOST_WEIGHT}."
        origin = dict(reward.chosen.origin) if reward.chosen and reward.chosen.origin else None
        if reward.chosen is not None:
            definition: Any = reward.chosen.define(reward.form.values)
        elif reward.choice == KEPT:
            definition, origin = decode_kept(reward.definition)
        else:
            reward.errors["choice"] = "This reward function is gone. Remove the column, or add another."
            return None
        if reward.errors:
            return None
        given = {"name": reward.name, "definition": definition, "weight": weight, "origin": origin}
        try:
            return RewardColumn.model_validate(given).model_dump(mode="json")
        except ValidationError as error:
            reward.errors["choice"] = "; ".join(one["msg"] for one in error.errors()[:3])
            return None


def close_gates(rewards: list[RewardInputs], columns: list[dict[str, Any] | None]) -> list[dict[str, Any]]:
    """The columns that could be read, each that another one gates inside a gate. A gate that is no other column is said at its input."""
    known = {str(reward.number): column["definition"] for reward, column in zip(rewards, columns, strict=True) if column}
    closed = []
    for reward, column in zip(rewards, columns, strict=True):
        if column is None:
            continue
        if reward.gate and (reward.gate not in known or reward.gate == str(reward.number)):
            reward.errors["gate"] = "Choose another column of this task, or none."
        elif reward.gate:
            gated = {"kind": "gate", "gate": known[reward.gate], "reward": column["definition"]}
            column = RewardColumn.model_validate({**column, "definition": gated}).model_dump(mode="json")
        closed.append(column)
    return closed


def parse_share(text: str) -> float | None:
    """A share from per cent; None for what is none."""
    try:
        value = float(text.replace(",", ".").removesuffix("%"))
    except ValueError:
        return None
    return round(value / 100, 6) if 0 <= value <= 90 else None


def parse_weight(text: str) -> float | None:
    try:
        value = float(text.replace(",", "."))
    except ValueError:
        return None
    return value if -MOST_WEIGHT <= value <= MOST_WEIGHT else None


def decode_kept(text: str) -> tuple[Any, Any]:
    """(definition, origin) of a column that was there before; what is no JSON is refused by the contract."""
    try:
        column = json.loads(text)
        return column["definition"], column.get("origin")
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError):
        return None, None


# What the form begins with.


def build_first_inputs(columns: Columns, name: str) -> QueryDict:
    """Of a new task: the columns guessed."""
    data = QueryDict(mutable=True)
    data["name"] = name.rsplit(".", 1)[0][:NAME_LENGTH]
    return fill_plan(data, guess_plan(columns))


def build_version_inputs(version: TaskVersion, task: Task, team: Team) -> QueryDict:
    """Of the next version: what the last one says."""
    data, definition = QueryDict(mutable=True), version.definition
    data["name"], data["system"] = task.name, definition["system"]
    data["project"] = str(task.project_id or "")
    data.setlist("shot_user", [shot["user"] for shot in definition["examples"]])
    data.setlist("shot_assistant", [shot["assistant"] for shot in definition["examples"]])
    fill_plan(data, version.plan)
    fill_rewards(data, definition["rewards"], list_reward_choices(team))
    return data


def fill_plan(data: QueryDict, plan: dict[str, Any]) -> QueryDict:
    for name in ("prompt", "reference", "demonstration"):
        data[f"column_{name}"] = plan.get(name, "")
    for name in ("after", "split_column"):
        data[name] = plan.get(name, "")
    data["split"] = plan.get("split", SHARE)
    data["heldout"] = ", ".join(plan.get("heldout", []))
    data["share"] = f"{100 * plan.get('share', 0.1):g}"
    data["skip"] = "1" if plan.get("skip") else ""
    data.setlist("data", plan.get("data", []))
    return data


def fill_rewards(data: QueryDict, columns: Iterable[dict[str, Any]], choices: dict[str, RewardChoice]) -> None:
    number, listed = -1, list(columns)
    numbers = {json.dumps(column["definition"], sort_keys=True): str(number) for number, column in enumerate(listed)}
    for number, column in enumerate(listed):
        prefix, definition = f"reward.{number}", column["definition"]
        is_plain_gate = definition["kind"] == "gate" and (definition["at_least"], definition["otherwise"]) == (1.0, 0.0)
        if is_plain_gate and (gate := numbers.get(json.dumps(definition["gate"], sort_keys=True), "")):
            data[f"{prefix}.gate"], definition = gate, definition["reward"]
        key = f"{LIBRARY}:{definition['function']}" if definition["kind"] == LIBRARY and not column["origin"] else KEPT
        key = key if key in choices else KEPT
        data[f"{prefix}.name"], data[f"{prefix}.weight"] = column["name"], f"{column['weight']:g}"
        data[f"{prefix}.choice"] = data[f"{prefix}.shown"] = key
        if key == KEPT:
            data[f"{prefix}.definition"] = json.dumps({"definition": definition, "origin": column["origin"]})
            continue
        for name, value in choices[key].write_inputs(definition["config"], prefix).items():
            data[name] = value
    data["rewards"] = str(number + 1)
