"""Somebody's Python as a reward: ``score(completion, reference, data)``, run in the sandbox and nowhere else."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

from trainers.rewards.scores import RewardFailed, Score, ScoringContext, shorten_error, spread_seconds

if TYPE_CHECKING:
    from trainers.rewards.scores import Rows
    from trainers.sandbox import ProgramResult

FUNCTION = "score"


class CodeScorer:
    light = True

    def __init__(self, source: str) -> None:
        self.source = source

    def score_batch(self, rows: Rows) -> list[Score]:
        """The source is run once for the batch; a row on which it fails has no score and the reason. Raises RewardFailed without a sandbox."""
        from trainers.sandbox import SandboxUnavailable, get_shared_sandbox

        if not rows:
            return []
        calls = [{"completion": text, "reference": example.reference, "data": example.data} for text, example in rows]
        began = time.perf_counter()
        try:
            results = get_shared_sandbox().call_function_many(self.source, FUNCTION, calls)
        except SandboxUnavailable as error:
            raise RewardFailed(f"code cannot be run on this machine: {error}") from error
        except (TypeError, ValueError) as error:  # a row whose data is too large or no JSON
            return [Score(None, shorten_error(f"the batch cannot be handed to the sandbox: {error}"), broken=True) for _ in rows]
        return spread_seconds([read_result(result) for result in results], time.perf_counter() - began)

    def collect(self) -> dict[str, float]:
        return {}

    def open(self, context: ScoringContext) -> None:
        """The sandbox starts with the first batch."""

    def close(self) -> None:
        """The sandbox is shared by the process."""


def read_result(result: ProgramResult) -> Score:
    if not result.ok:
        return Score(None, shorten_error(result.error or result.outcome), broken=True)
    if result.value is None:
        return Score(None)
    if isinstance(result.value, bool | int | float):
        try:
            value = float(result.value)
        except OverflowError:
            value = math.inf
        finite = math.isfinite(value)
        return Score(value) if finite else Score(None, f"score returned {value}: return a finite number or None", broken=True)
    return Score(None, shorten_error(f"score returned {type(result.value).__name__}: return a number or None"), broken=True)
