"""Mean rewards of each step, from the rollouts themselves, for a source that comes without metrics: they move the run's step and draw its curve.

Nothing is made up: a step counts once it is complete (a later one has begun, or nothing more will come), and a reward that some rollouts of the step
lack is the mean of those that have it. What stands in between is JSON, kept with the place in the source.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from trainers.contract.events import Metrics, Rollout

PREFIXES = {"train": "", "heldout": "heldout/"}


class StepMeans:
    """``state``: phase -> the step that is open, with (sum, count) of each number."""

    def __init__(self, state: dict[str, Any]) -> None:
        self.state = state

    def add(self, event: Rollout) -> Iterator[Metrics]:
        """The metrics of the step before, when this rollout begins another."""
        if event.phase not in PREFIXES:
            return
        now = self.state.get(event.phase)
        if now is not None and now["step"] != event.step:
            yield self.build_metrics(event.phase)
            now = None
        if now is None:
            now = self.state[event.phase] = {"step": event.step, "time": event.time, "sums": {}}
        now["time"] = max(now["time"], event.time)
        numbers: dict[str, float | None] = {"reward": event.reward}
        if event.phase == "train":
            numbers |= {f"rewards/{name}/mean": value for name, value in event.rewards.items()}
            numbers["completions/mean_length"] = None if event.length is None else float(event.length)
        else:
            numbers |= {name: value for name, value in event.rewards.items() if name != "reward"}
            numbers["length"] = None if event.length is None else float(event.length)
        for name, value in numbers.items():
            if value is not None:
                total, count = now["sums"].get(name, (0.0, 0))
                now["sums"][name] = (total + value, count + 1)

    def close_all(self) -> Iterator[Metrics]:
        """The metrics of the steps that are open: nothing more will come."""
        for phase in [*self.state]:
            yield self.build_metrics(phase)

    def build_metrics(self, phase: str) -> Metrics:
        done = self.state.pop(phase)
        values = {PREFIXES[phase] + name: total / count for name, (total, count) in done["sums"].items()}
        return Metrics(attempt=1, time=done["time"], step=done["step"], values=values)
