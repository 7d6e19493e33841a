"""Training examples that are rewritten while training: a new version is tried on one group, and kept or dropped by how often it was solved."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from trainers.contract.events import Message
from trainers.maths.thresholds import is_at_least
from trainers.tasks.base import BUCKETS, BUCKETS_OF, Example, digest_example

Goal = Literal["harder", "easier"]
HARDER: Goal = "harder"
EASIER: Goal = "easier"


def accepts_version(goal: Goal, before: float, after: float, hard: float, easy: float) -> bool:
    """Whether a rewritten task is kept, by the shares of successes at the old one and at the new."""
    if after <= 0:
        return False
    return is_at_least(after, hard) and after < before if goal == HARDER else before < after and is_at_least(easy, after)


def is_for_training(example: Example) -> bool:
    """Whether an example may be trained on: the others are held out, or for pairs."""
    return digest_example(example)[0] % BUCKETS in BUCKETS_OF["train"]


@dataclass(eq=False)
class LivingTask:
    """It has what an ``Example`` has. ``trial``: the version that its next group plays; ``before``: successes at the one that it is to replace."""

    prompt: list[Message]
    reference: str
    data: dict[str, Any]
    goal: Goal = HARDER
    before: float = 0.0
    trial: Example | None = None
    history: list[tuple[str, float, float, bool]] = field(default_factory=list)  # goal, shares before and after, kept

    @property
    def version(self) -> Example:
        return self.trial if self.trial is not None else Example(self.prompt, self.reference, self.data)

    def take(self, version: Example) -> None:
        self.prompt, self.reference, self.data = list(version.prompt), version.reference, dict(version.data)

    def judge_trial(self, share: float, hard: float, easy: float, most: int) -> bool:
        """Keeps or drops the version that was played, of which ``share`` succeeded; ``most``: entries of the history."""
        assert self.trial is not None
        kept = accepts_version(self.goal, self.before, share, hard, easy)
        self.history = [*self.history, (self.goal, self.before, share, kept)][-most:]
        if kept:
            self.take(self.trial)
        self.trial = None
        return kept

    def order_version(self, goal: Goal, share: float, versions: Sequence[Example], rng: random.Random) -> None:
        """Puts one of ``versions`` on trial, where one of them may be trained on."""
        allowed = [version for version in versions if is_for_training(version)]
        if allowed:
            self.goal, self.before, self.trial = goal, share, rng.choice(allowed)
