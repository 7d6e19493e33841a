"""What a task is: prompts, how an answer is scored, and (for multi-turn tasks) what the world answers. Pure Python: a web process may import it.

A task is one file. Built-in tasks live in this package; a third party adds one with a package entry point in the group ``policy_lab.tasks``
whose value is a Task subclass.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from trainers.events import Message

Split = Literal["train", "heldout", "pairs"]


@dataclass(frozen=True)
class Example:
    """One prompt with what scoring its answer needs. ``data`` is JSON (a knowledge base, the number of steps), never shown to the policy."""

    prompt: list[Message]
    reference: str
    data: dict[str, Any] = field(default_factory=dict)


RewardFunction = Callable[[str, Example], float | None]  # completion text -> score; None = this function has no opinion on this example


@dataclass(frozen=True)
class Reward:
    function: RewardFunction
    summary: str
    weight: float  # in the summed reward unless the spec says otherwise; 0 = only measured


class Task:
    """Subclass it, fill the class variables and override what the task needs; all methods are deterministic in their arguments."""

    name: ClassVar[str]
    title: ClassVar[str]
    summary: ClassVar[str]
    difficulties: ClassVar[dict[str, str]]  # name -> what it means; the first is the default
    rewards: ClassVar[dict[str, Reward]]  # the first one is the task's accuracy
    demonstrations: ClassVar[str]  # what the cold start's demonstrations are like, said to the person who launches one
    stop: ClassVar[tuple[str, ...]] = ()  # a turn of the policy also ends after one of these
    max_turns: ClassVar[int] = 1
    max_turn_tokens: ClassVar[int] = 0  # longest single turn of the policy; 0 = as long as the completion may be

    def examples(self, split: Split, count: int, seed: int, difficulty: str) -> list[Example]:
        """``count`` examples; held-out prompts do not depend on ``seed`` and never occur in another split."""
        raise NotImplementedError

    def gold(self, example: Example) -> str:
        """A completion (of the policy alone, or with the world's answers in it) that gets the full reward of every function."""
        raise NotImplementedError

    def demonstration(self, example: Example, rng: random.Random) -> str:
        """One demonstration for the cold start, as imperfect as ``demonstrations`` says."""
        raise NotImplementedError

    def respond(self, example: Example, text: str) -> str | None:
        """The world's answer to the completion so far, which ends in one of ``stop``; None ends the episode."""
        return None
