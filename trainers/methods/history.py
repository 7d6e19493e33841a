"""The training history of every prompt, which curricula use. Saved in checkpoints."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Visit:
    """One sampled group of a prompt: its mean reward and its share of correct completions."""

    step: int
    reward: float
    accuracy: float


@dataclass
class History:
    size: int  # number of training examples
    total_steps: int
    step: int = 0  # of the batch to come, from 1
    visits: dict[int, list[Visit]] = field(default_factory=dict)  # by example, oldest first

    def add(self, example: int, visit: Visit) -> None:
        self.visits.setdefault(example, []).append(visit)

    def last_accuracy(self, default: float) -> list[float]:
        """The last accuracy of every example; ``default`` for examples not sampled yet."""
        return [self.visits[i][-1].accuracy if i in self.visits else default for i in range(self.size)]

    def state(self) -> dict[str, Any]:
        return {"visits": {i: [(v.step, v.reward, v.accuracy) for v in seen] for i, seen in self.visits.items()}}

    def restore(self, state: dict[str, Any]) -> None:
        rows: dict[int, Sequence[Any]] = state["visits"]
        self.visits = {int(i): [Visit(*row) for row in seen] for i, seen in rows.items()}
