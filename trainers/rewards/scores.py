"""What scoring a completion gives, and what scores: a library function, somebody's Python, or a composition of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from trainers.tasks.base import Example

Row = tuple[str, "Example"]  # a completion and what it answers
Rows = Sequence[Row]
SHOWN = 300  # characters of an error


class RewardFailed(RuntimeError):
    """Scoring cannot go on: a task's own function raised, or all of a batch could not be scored. One row's own error is in its Score instead."""


class UnusableRow(ValueError):
    """A row that a function cannot judge: no opinion, with the reason."""


@dataclass(frozen=True)
class Score:
    """``value``: None = no opinion. ``error``: why a function failed on this row. ``seconds``: the row's share of the batch's time.
    ``broken``: somebody's Python failed on it."""

    value: float | None
    error: str = ""
    seconds: float = 0.0
    broken: bool = False


@dataclass
class ScoringContext:
    """What scorers share. ``folder``: where answers of a judge are kept between attempts; ``device`` of models: auto, cpu or cuda."""

    folder: Path | None = None
    device: str = "auto"
    models: dict[str, object] = field(default_factory=dict)  # loaded once, however many columns use them


class Scorer(Protocol):
    light: bool  # False: it loads a model or asks an endpoint, which checks before a run leave out

    def score_batch(self, rows: Rows) -> list[Score]:
        """A score for each row, in order. Raises RewardFailed where nothing can be scored at all."""

    def collect(self) -> dict[str, float]:
        """What was counted since the last call (``calls``, ``tokens``, ``timeouts``), by name."""

    def open(self, context: ScoringContext) -> None:
        """Says where the run is, before the first batch; without it there is no folder."""

    def close(self) -> None:
        """Ends what scoring started: processes, models."""


def score_each(rows: Rows, score: Callable[[str, Example], float | None]) -> list[Score]:
    """One row after the other; an exception is that row's alone."""
    found = []
    for text, example in rows:
        began = time.perf_counter()
        try:
            one = Score(score(text, example))
        except RewardFailed:
            raise
        except UnusableRow as error:
            one = Score(None, shorten_error(str(error)))
        except Exception as error:  # a text that a policy wrote and a row that anybody wrote: anything can happen
            one = Score(None, shorten_error(f"{type(error).__name__}: {error}"))
        found.append(replace(one, seconds=time.perf_counter() - began))
    return found


def spread_seconds(scores: Sequence[Score], seconds: float) -> list[Score]:
    """The scores of a batch that was scored at once, its time shared equally."""
    share = seconds / max(1, len(scores))
    return [replace(score, seconds=share) for score in scores]


def shorten_error(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= SHOWN else text[: SHOWN - 1] + "…"
