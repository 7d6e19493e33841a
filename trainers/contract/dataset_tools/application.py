"""A tool applied to rows: its settings read, each row with a generator of its own, and what was read, made and dropped."""

from __future__ import annotations

import hashlib
import json
import random
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from trainers.contract.dataset_tools.base import DatasetTool, MadeRow, Row, RowDropped, RowForm
from trainers.contract.dataset_tools.registry import TOOLS, suggest_tool
from trainers.contract.problems import Problem, SpecError
from trainers.contract.refusals import problems_of

MOST_SEED = 2**31 - 1


@dataclass(frozen=True)
class RowOutcome:
    """``made`` is empty exactly where ``dropped`` says why."""

    made: list[MadeRow] = field(default_factory=list)
    dropped: str = ""


@dataclass
class ToolCounts:
    """Rows ``read`` are those that rows were made of and those that were dropped, by reason."""

    read: int = 0
    made: int = 0
    dropped: Counter[str] = field(default_factory=Counter)

    def add(self, outcome: RowOutcome) -> None:
        self.read += 1
        self.made += len(outcome.made)
        if outcome.dropped:
            self.dropped[outcome.dropped] += 1

    def as_json(self) -> dict[str, Any]:
        return {"read": self.read, "made": self.made, "dropped": dict(self.dropped.most_common())}


def load_tool(name: str, config: Mapping[str, Any]) -> DatasetTool:
    """The tool with these settings; those left out have their defaults. Raises SpecError."""
    kind = TOOLS.get(name)
    if kind is None:
        raise SpecError([Problem("tool", name, "there is no such dataset tool", suggest_tool(name))])
    try:
        return kind(kind.Config.model_validate(dict(config)))
    except ValidationError as error:
        found = problems_of(error, kind.Config)
        raise SpecError([Problem(f"config.{one.field}", one.value, one.message, one.fix, one.given) for one in found]) from None


def apply_tool(tool: DatasetTool, rows: Iterable[Row], form: RowForm, seed: int) -> Iterator[RowOutcome]:
    """What becomes of each row, in their order. The form is one that the tool takes."""
    for row in rows:
        try:
            yield RowOutcome(tool.make_rows(row, form, make_row_generator(tool, row, seed)))
        except RowDropped as reason:
            yield RowOutcome(dropped=str(reason))


def make_row_generator(tool: DatasetTool, row: Row, seed: int) -> random.Random:
    """Random numbers of one row: the same for the same row under the same seed, wherever it stands in whichever version."""
    written = json.dumps(row, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    digest = hashlib.sha256(written.encode(errors="surrogatepass")).hexdigest()
    return random.Random(f"{tool.card.name}/{seed}/{digest}")
