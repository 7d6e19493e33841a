"""Numbers of another framework as the lab's metrics: their names, numbers JSON has no word for, and several logged for one step as one event."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, Literal, cast

from trainers.contract.events import Metrics
from trainers.outside.readers.base import LARGEST_STEP
from trainers.outside.readers.chat_text import to_storable_text

MOST_NAMES = 1000  # in one event; the lab takes 2,000
STEP_NAMES = ("train/global_step", "training/global_step", "trainer/global_step", "global_step")  # the trainer's own count, where it is logged
LEFT_OUT = (*STEP_NAMES, "epoch", "train/epoch")
WORDS = {"nan": "nan", "infinity": "inf", "inf": "inf", "-infinity": "-inf", "-inf": "-inf"}


def name_metric(name: str) -> str:
    """transformers' train/reward is the lab's reward, its eval/reward and eval_reward are heldout/reward; all others keep their names."""
    for prefix, ours in (("train/", ""), ("eval/", "heldout/"), ("eval_", "heldout/")):
        if name.startswith(prefix) and len(name) > len(prefix):
            return to_storable_text(ours + name.removeprefix(prefix))
    return to_storable_text(name)


class StepMerger:
    """Collects numbers until those of another step come."""

    def __init__(self) -> None:
        self.step, self.time, self.values = -1, 0.0, dict[str, float]()

    def add(self, step: int, time: float, values: Mapping[str, float]) -> Iterator[Metrics]:
        """The events of the step before, once this is another."""
        if not 0 <= step <= LARGEST_STEP:
            return
        if step != self.step:
            yield from self.flush()
            self.step = step
        self.time = max(self.time, time)
        self.values |= {name_metric(name): value for name, value in values.items() if name and name not in LEFT_OUT}

    def flush(self) -> Iterator[Metrics]:
        values, self.values = [*self.values.items()], {}
        time, self.time = self.time, 0.0
        for start in range(0, len(values), MOST_NAMES):
            part = values[start : start + MOST_NAMES]
            finite = {name: value for name, value in part if math.isfinite(value)}
            other = {name: cast(Literal["nan", "inf", "-inf"], str(float(value))) for name, value in part if not math.isfinite(value)}
            yield Metrics(attempt=1, time=time, step=self.step, values=finite, nonfinite=other)


def read_logged_numbers(row: Mapping[str, Any], prefix: str = "") -> dict[str, float]:
    """The numbers in what was logged, those of nested objects under ``outer.inner``; texts, tables and pictures are left out."""
    found: dict[str, float] = {}
    for name, value in row.items():
        if isinstance(value, Mapping) and "_type" not in value and len(prefix) < 200:
            found |= read_logged_numbers(value, f"{prefix}{name}.")
        elif isinstance(value, str) and value.lower() in WORDS:
            found[prefix + name] = float(WORDS[value.lower()])
        elif isinstance(value, bool | int | float):
            try:
                found[prefix + name] = float(value)
            except OverflowError:
                continue
    return found


def find_logged_step(values: Mapping[str, float], own: int) -> int:
    """The trainer's step where it is logged, else the logger's ``own``, which counts calls."""
    for name in STEP_NAMES:
        value = values.get(name)
        if value is not None and math.isfinite(value) and value == int(value) and value >= 0:
            return int(value)
    return own
