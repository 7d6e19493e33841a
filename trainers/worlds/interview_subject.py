"""What a conversation of the world ``interview`` can be about beside illnesses: its prompts, its person and its scores, as pure functions."""

import random
from typing import ClassVar

from trainers.tasks.base import Example
from trainers.worlds.base import State, Step, Tool

Scores = dict[str, float | None]


class Subject:
    """Subclass it in a file of its own. ``max_turn_tokens``: longest turn of the policy; ``rewards``: column -> (what it says, weight)."""

    tools: ClassVar[tuple[Tool, ...]]
    rewards: ClassVar[dict[str, tuple[str, float]]]
    takes_answer: ClassVar[bool] = True
    max_turn_tokens: ClassVar[int] = 12
    splits_by_content: ClassVar[bool] = False  # whether the held-out split has what ``is_unseen`` says, and the others what it does not

    def example(self, rng: random.Random, difficulty: str) -> Example:
        raise NotImplementedError

    def is_unseen(self, example: Example) -> bool:
        """Whether the example is kept for the held-out split alone."""
        return False

    def begin(self, example: Example) -> State:
        raise NotImplementedError

    def count_turns(self, state: State) -> int:
        """How many turns the policy has had."""
        raise NotImplementedError

    def hear(self, example: Example, state: State, argument: str) -> Step:
        """What the person says to a question or a message, and what it changes."""
        raise NotImplementedError

    def score(self, example: Example, state: State) -> Scores:
        """The columns beside ``format``."""
        raise NotImplementedError

    def way(self, example: Example, state: State, turns: int) -> list[str]:
        """Turns of the policy that earn all there is, with ``turns`` left. Raises LookupError."""
        raise NotImplementedError

    def demonstrate(self, example: Example, rng: random.Random) -> list[str]:
        """Turns of a demonstration of mixed quality."""
        raise NotImplementedError
