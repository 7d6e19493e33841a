"""The form of a dataset tool: which tool, its settings, the seed, and what the version that it makes is a version of. Nothing that was typed is lost.

Inputs: ``tool``; ``config.<setting>``, read where ``shown`` says that they are the tool's; ``seed``; ``dataset`` (id of one whose next version it is;
empty: a new one) and ``name``; ``notes``.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any
from urllib.parse import urlencode

from django.urls import reverse

from lab.data.datasets.models import Dataset, Version
from lab.data.datasets.tool_acts import LONGEST_NAME, apply_tool_to_version, list_tool_datasets
from lab.data.datasets.tool_plan import ToolPlan, explain_tool_refusal, plan_tool
from lab.lib.numbers import parse_whole_number
from lab.lib.refusals import InputRefusal
from lab.teams.accounts.models import User
from lab.training.runs.problem_words import format_problem_sentence
from lab.training.runs.schema_form import build_schema_fields
from lab.training.runs.spec_fields import SpecField
from lab.training.runs.spec_form import SpecForm
from trainers.contract.dataset_tools.application import MOST_SEED
from trainers.contract.dataset_tools.base import DatasetTool, ToolCard
from trainers.contract.dataset_tools.registry import TOOLS
from trainers.contract.problems import Problem as SpecProblem

CONFIG = "config"
OFFERED = 50  # datasets whose next version it can be


def list_setting_fields(kind: type[DatasetTool]) -> dict[str, SpecField]:
    return build_schema_fields(kind.Config.model_json_schema())


def suggest_dataset_name(source: Version, kind: type[DatasetTool]) -> str:
    ending = f", {kind.suffix}"
    return f"{source.dataset.name[: LONGEST_NAME - len(ending)]}{ending}"


class ToolForm:
    """``data``: what a browser sent, or an address says. ``errors``: by input; those of settings stand at their inputs."""

    def __init__(self, source: Version, data: Mapping[str, Any]) -> None:
        self.source, self.data = source, data
        self.tools = [(kind.card, explain_tool_refusal(kind, source.dataset.form)) for kind in TOOLS.values()]
        usable = [TOOLS[card.name] for card, refused in self.tools if not refused]
        self.kind = next((kind for kind in usable if kind.card.name == data.get("tool")), usable[0] if usable else None)
        self.errors: dict[str, str] = {}
        self.seed, self.notes = self.read_text("seed", "0").strip(), self.read_text("notes").strip()[:10_000]
        self.name = self.read_text("name", suggest_dataset_name(source, self.kind) if self.kind else "").strip()

    @property
    def card(self) -> ToolCard | None:
        return self.kind.card if self.kind else None

    def read_text(self, name: str, default: str = "") -> str:
        return str(self.data.get(name, default)).replace("\0", "").replace("\r\n", "\n")

    @cached_property
    def settings(self) -> SpecForm:
        """The settings of the tool that is shown; those that were sent for another tool are not read."""
        if self.kind is None:
            return SpecForm(None, CONFIG)
        sent = self.data if self.data.get("shown") == self.kind.card.name else None
        return SpecForm(sent, CONFIG, None, list_setting_fields(self.kind))

    @cached_property
    def datasets(self) -> list[Dataset]:
        if self.kind is None:
            return []
        made = self.kind.forms[self.source.dataset.form]  # type: ignore[index]
        return list(list_tool_datasets(self.source.dataset.team, made)[:OFFERED])

    @property
    def chosen_dataset(self) -> Dataset | None:
        return next((one for one in self.datasets if str(one.pk) == self.data.get("dataset")), None)

    @property
    def error_count(self) -> int:
        return len(self.errors) + len(self.settings.errors)

    def read_plan(self) -> ToolPlan | None:
        """What the inputs stand for; None where they cannot be used, with the reasons at the inputs. Raises Refusal for the version."""
        seed = parse_whole_number(self.seed, MOST_SEED)
        if seed is None:
            self.errors["seed"] = f"Enter a whole number from 0 to {MOST_SEED}."
        if self.kind is None:
            self.errors["tool"] = "No tool takes rows of this form."
            return None
        try:
            plan = plan_tool(self.source, self.kind.card.name, self.settings.values, seed or 0)
        except InputRefusal as refusal:
            self.note_problems(refusal)
            return None
        return None if self.errors else plan

    def note_problems(self, refusal: InputRefusal) -> None:
        for problem in refusal.problems:
            part, _, path = problem.field.partition(".")
            setting = path.partition(".")[0]  # of a list the number of its value follows
            words = format_problem_sentence(SpecProblem(problem.field, "", problem.message, problem.fix))
            if part == CONFIG and setting in self.settings.fields:
                self.settings.add_error(setting, words)
            else:
                self.errors[part] = words

    def check(self) -> ToolPlan | None:
        """The plan of a form that can be sent; None where an input cannot be used. Raises Refusal for the version."""
        plan = self.read_plan()
        if self.data.get("dataset") and self.chosen_dataset is None:
            self.errors["dataset"] = "This dataset is not there, or holds other rows. Choose another."
        if not self.data.get("dataset") and not self.name:
            self.errors["name"] = "Enter a name."
        if len(self.name) > LONGEST_NAME:
            self.errors["name"] = f"The name has {len(self.name)} characters. Use at most {LONGEST_NAME}."
        return None if self.error_count else plan

    def make_version(self, plan: ToolPlan, user: User) -> Version:
        """The version that the form stands for, queued. Raises Refusal."""
        return apply_tool_to_version(self.source, plan, user, name=self.name, dataset=self.chosen_dataset, notes=self.notes)


def build_again_url(version: Version, plan: ToolPlan) -> str:
    """Where the tool that made the version is applied to the same source again, with its settings filled in."""
    inputs = {"tool": plan.name, "shown": plan.name, "seed": str(plan.seed), "dataset": str(version.dataset_id)}
    if kind := TOOLS.get(plan.name):
        for name, made in list_setting_fields(kind).items():
            value = plan.config.get(name, made.initial)
            if isinstance(value, bool):
                inputs |= {f"{CONFIG}.{name}": "on"} if value else {}
            else:
                inputs[f"{CONFIG}.{name}"] = str(made.prepare_value(value))
    return f"{reverse('version-tool', args=[plan.version])}?{urlencode(inputs)}"
