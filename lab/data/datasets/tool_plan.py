"""What a dataset tool is to do: which tool with which settings on which version. A version made by a tool keeps this in ``rule["tool"]``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from lab.data.datasets.models import Form, Version, VersionState
from lab.data.datasets.rule_words import ROW_WORDS
from lab.lib.refusals import InputRefusal, Problem, Refusal
from lab.training.runs.problem_words import format_problem_sentence
from trainers.contract.dataset_tools.application import MOST_SEED, load_tool
from trainers.contract.dataset_tools.base import DatasetTool
from trainers.contract.dataset_tools.registry import TOOLS
from trainers.contract.problems import SpecError

KEY = "tool"  # of a version's rule


@dataclass(frozen=True)
class ToolPlan:
    """``config`` is complete. ``version`` and ``digest`` are the source's; ``source`` is what it was called then, ``form`` what its rows are."""

    name: str
    config: dict[str, Any]
    seed: int
    version: int
    digest: str
    source: str
    form: str

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def read(cls, rule: Mapping[str, Any]) -> ToolPlan | None:
        """Of a version's rule; None for a version that no tool made."""
        return cls(**rule[KEY]) if rule.get(KEY) else None

    @property
    def made_form(self) -> Form:
        return Form(TOOLS[self.name].forms[self.form])  # type: ignore[index]  # forms of tools and of datasets have the same names

    def load(self) -> DatasetTool:
        """Raises Refusal for a plan of another version of the lab."""
        try:
            return load_tool(self.name, self.config)
        except SpecError as error:
            raise Refusal(f"The tool cannot be used any more: {format_problem_sentence(error.problems[0])}", "Apply a tool again.") from None


def plan_tool(source: Version, name: str, config: Mapping[str, Any], seed: int) -> ToolPlan:
    """The plan, complete. Raises InputRefusal for the inputs ``tool``, ``config.…`` and ``seed``, and Refusal for the version."""
    if source.state != VersionState.READY:
        raise Refusal(f"{source} is {source.state}: a tool is applied to versions that are ready.")
    try:
        tool = load_tool(name, config)
    except SpecError as error:
        raise InputRefusal([Problem(problem.field, problem.message, problem.fix) for problem in error.problems]) from None
    form = str(source.dataset.form)
    if form not in tool.forms:
        raise InputRefusal([Problem("tool", explain_tool_refusal(type(tool), form), "choose another tool or another version")])
    if not 0 <= seed <= MOST_SEED:
        raise InputRefusal([Problem("seed", "is out of range", f"use 0 to {MOST_SEED}")])
    return ToolPlan(name, tool.config.model_dump(mode="json"), seed, source.pk, source.digest, str(source), form)


def explain_tool_refusal(kind: type[DatasetTool], form: str) -> str:
    """Why the tool takes no rows of the form; empty when it does."""
    if form in kind.forms:
        return ""
    return f"Takes {' or '.join(ROW_WORDS[Form(one)] for one in kind.forms)}; this version holds {ROW_WORDS[Form(form)]}."
