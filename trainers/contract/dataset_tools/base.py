"""DatasetTool: makes rows out of the rows of a dataset, before a run. A subclass says what it is, which rows it takes and what it makes of one row.

A tool sees one row at a time and draws from the generator it is given, never from a global one, so that what becomes of a row does not depend on the
rows around it. Rows are never changed in place.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from trainers.contract.hyperparameters import Strict

Row = dict[str, Any]
RowForm = Literal["preference", "kto", "completion", "stepwise", "prompt"]  # what the columns of a row are, after TRL's dataset formats


class RowDropped(Exception):
    """Nothing is made of a row. The reason stands in the table of counts, such as "answers with fewer than two steps": it quotes no row."""


@dataclass(frozen=True)
class MadeRow:
    """``note``: what the tool did to this row, for people who look at it."""

    row: Row
    note: str


@dataclass(frozen=True)
class ToolCard:
    """``name`` is the id of the paper's card. ``departures``: differences from the paper, a short sentence each."""

    name: str
    title: str
    summary: str
    arxiv: str
    system: str
    departures: tuple[str, ...] = ()


class NoSettings(Strict):
    """A tool without settings."""


class DatasetTool:
    """``forms``: form of the rows it takes → form of the rows it makes. ``suffix``: how a dataset that it made is called, after its source."""

    card: ClassVar[ToolCard]
    suffix: ClassVar[str]
    forms: ClassVar[Mapping[RowForm, RowForm]]
    Config: ClassVar[type[Strict]] = NoSettings

    def __init__(self, config: Any = None) -> None:
        self.config: Any = config if config is not None else self.Config()

    def make_rows(self, row: Row, form: RowForm, rng: random.Random) -> list[MadeRow]:
        """What becomes of a row of ``form``: one row or more. Raises RowDropped."""
        raise NotImplementedError
