"""Worlds whose episode can go on in a new context that holds only what the policy has kept of the old one.

A method that folds (``trainers/methods/folding.py``) decides when that happens. A policy has to have seen such contexts before it can be trained in
them, so a share of the demonstrations is told in them.
"""

import random
from collections.abc import Sequence

from trainers.contract.events import Message
from trainers.tasks.base import Example
from trainers.worlds.base import POLICY, Said, State
from trainers.worlds.tool_use import ToolWorld

Context = tuple[list[Message], list[Said]]  # a prompt and what follows it


class WindowWorld(ToolWorld):
    """Subclass it and write ``write_window`` and ``windows``."""

    @property
    def windows(self) -> float:
        """Share of the demonstrations that are told in contexts of their own."""
        raise NotImplementedError

    def write_window(self, example: Example, state: State) -> list[Message]:
        """The prompt of a new context in ``state``: the question, what was kept, and what is there to be read."""
        raise NotImplementedError

    def draw_contexts(self, example: Example, rng: random.Random) -> list[Context]:
        """One demonstration, in one context or with a new context after each turn. Draws from ``rng`` what ``turns`` draws, and once more where there
        are windows.
        """
        said = self.turns(example, rng)
        if self.windows and rng.random() < self.windows:
            return self.split_windows(example, [one.text for one in said if one.seat])
        return [(example.prompt, said)]

    def split_windows(self, example: Example, turns: Sequence[str]) -> list[Context]:
        """Each turn of the policy in a context of its own."""
        state, prompt, made = self.begin(example), example.prompt, list[Context]()
        for number, text in enumerate(turns):
            made.append((prompt, [Said(POLICY, text)]))
            state = self.step(example, state, POLICY, text, self.draw_noise(example, number)).state
            prompt = self.write_window(example, state)
        return made
