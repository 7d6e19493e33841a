"""Functions that score with a model: rows that can be read go through it together, the others say why not."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from trainers.rewards.scores import RewardFailed, Score, UnusableRow, shorten_error, spread_seconds

if TYPE_CHECKING:
    from trainers.rewards.scores import Rows, ScoringContext
    from trainers.tasks.base import Example

Read = TypeVar("Read")
Model = TypeVar("Model")


def load_once(context: ScoringContext, name: str, load: Callable[[], Model]) -> Model:
    """The model called ``name``, loaded by the first column that asks. Raises RewardFailed where it cannot be."""
    if name not in context.models:
        try:
            context.models[name] = load()
        except Exception as error:
            raise RewardFailed(f"{name} cannot be loaded: {error}") from error
    found: Any = context.models[name]
    return found  # type: ignore[no-any-return]


def score_together(rows: Rows, read: Callable[[str, Example], Read], score: Callable[[Sequence[Read]], list[float]]) -> list[Score]:
    """``read`` makes of a row what the model takes, or raises; ``score`` scores all of them in one call."""
    began = time.perf_counter()
    scores: list[Score] = [Score(None)] * len(rows)
    taken: dict[int, Read] = {}
    for place, (text, example) in enumerate(rows):
        try:
            taken[place] = read(text, example)
        except UnusableRow as error:
            scores[place] = Score(None, shorten_error(str(error)))
        except Exception as error:  # of a chat template or a tokenizer
            scores[place] = Score(None, shorten_error(f"{type(error).__name__}: {error}"))
    for place, value in zip(taken, score(list(taken.values())) if taken else [], strict=True):
        scores[place] = Score(value)
    return spread_seconds(scores, time.perf_counter() - began)
