"""Who plays which seat of an episode. Imports no torch."""

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from trainers.tasks.base import Example
from trainers.worlds.base import State

Who = Literal["policy", "snapshot", "folder", "rule"]
Rule = Callable[[Example, State, random.Random], str]  # what the seat says in a state of the world


@dataclass(frozen=True)
class Player:
    """``who``: the weights in training, the run's starting weights (``snapshot``), those of ``folder``, or a function of world and state.

    ``prompt``: a system message that makes it the seat's player, before what the world shows it. Only the weights in training can be ``trained``.
    """

    who: Who = "policy"
    prompt: str = ""
    trained: bool = True
    folder: str = ""
    rule: Rule | None = None

    def __post_init__(self) -> None:
        if (self.who == "rule") != (self.rule is not None):
            raise ValueError("a player by rule needs its rule, and no other has one")
        if (self.who == "folder") != bool(self.folder):
            raise ValueError("a player from a folder needs the folder, and no other has one")

    @property
    def in_loss(self) -> bool:
        return self.trained and self.who == "policy"


TRAINED_POLICY = Player()
