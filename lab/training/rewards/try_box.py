"""The try-it box of the editor: completions that somebody pasted, or that a run stored, and what a definition scores them.

Inputs: ``rows`` (how many) and of each ``row.0.completion``, ``.reference``, ``.data`` (JSON) and ``.prompt`` (of a stored one); ``from`` (a run).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from lab.lib.numbers import parse_whole_number
from lab.lib.refusals import InputRefusal, Problem
from lab.lib.registry import Registry
from lab.teams.accounts.models import Team
from lab.training.rewards.definition_check import LONGEST, MOST_ROWS, try_definition


@dataclass
class TriedRow:
    number: int
    completion: str
    reference: str
    data: str
    prompt: str = ""
    errors: dict[str, str] = field(default_factory=dict)
    score: dict[str, Any] | None = None

    def as_request(self) -> dict[str, Any]:
        """Raises InputRefusal."""
        given: Any = {}
        if self.data.strip():
            try:
                given = json.loads(self.data)
            except (ValueError, RecursionError) as error:
                raise InputRefusal([Problem(f"row.{self.number}.data", f"This is not JSON: {error}.")]) from None
            if not isinstance(given, dict):
                raise InputRefusal([Problem(f"row.{self.number}.data", 'Enter a JSON object, such as {"unit": "km"}.')])
        return {"completion": self.completion, "reference": self.reference, "data": given, "prompt": self.prompt}


RowSource = Callable[[Team, str, int], list[dict[str, str]]]
SOURCES: Registry[RowSource] = Registry("source of rows to try")  # (team, run's id, most) → completion, reference and prompt of its newest step


class TryBox:
    def __init__(self, team: Team, data: Mapping[str, Any]) -> None:
        self.team, self.data = team, data
        self.run = str(data.get("from", ""))
        count = parse_whole_number(str(data.get("rows", "1")), MOST_ROWS, 1) or 1
        self.rows = [self._read_row(number) for number in range(count)]
        self.error = ""
        self.seconds: float | None = None

    def _read_row(self, number: int) -> TriedRow:
        completion, reference, data, prompt = (self._read(number, name) for name in ("completion", "reference", "data", "prompt"))
        return TriedRow(number, completion, reference, data, prompt)

    def _read(self, number: int, name: str) -> str:
        return str(self.data.get(f"row.{number}.{name}", "")).replace("\0", "").replace("\r\n", "\n")[:LONGEST]

    @property
    def has_room(self) -> bool:
        return len(self.rows) < MOST_ROWS

    def edit(self, act: str) -> None:
        """Adds a row, or takes those of a run. Anything else changes nothing."""
        if act == "row-add" and self.has_room:
            self.rows.append(TriedRow(len(self.rows), "", self.rows[-1].reference, self.rows[-1].data))
        elif act == "rows-load":
            found = [row for source in SOURCES.values() for row in source(self.team, self.run, MOST_ROWS)] if self.run else []
            if found:
                self.rows = [TriedRow(number, row["completion"], row["reference"], "", row["prompt"]) for number, row in enumerate(found[:MOST_ROWS])]
            else:
                self.error = "This run has no stored rollouts. Choose another." if self.run else "Choose a run."

    def run_trial(self, definition: dict[str, Any]) -> None:
        """Scores the rows. Raises InputRefusal for the definition, and Refusal."""
        asked = []
        for row in self.rows:
            try:
                asked.append(row.as_request())
            except InputRefusal as refusal:
                row.errors["data"] = refusal.problems[0].message
        if any(row.errors for row in self.rows):
            return
        answer = try_definition(self.team, definition, asked)
        self.seconds = answer["seconds"]
        for row, score in zip(self.rows, answer["scores"], strict=True):
            row.score = score
