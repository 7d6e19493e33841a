"""Worlds of the catalogue, and an episode that a person plays in one: worked out in a child with limits, because people's text goes into it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lab.lib import bounded_process
from lab.lib.child_environment import PREFLIGHT
from lab.lib.numbers import parse_whole_number
from lab.lib.refusals import Refusal
from lab.training.catalog.catalog import Catalog

PLAY = "trainers.checks.world_play:answer_world_play"
LIMITS = bounded_process.ProcessLimits(seconds=10, cpu_seconds=10, memory=1 << 30, result=1 << 20, nice=5)
MOST_EXAMPLES, LONGEST_TURN, LONGEST_EPISODE = 50, 2_000, 8_000

children = bounded_process.ForkedChildren(bounded_process.ForkServer(PREFLIGHT), bounded_process.CallSlots(at_once=3, of_one=2))


def list_worlds(catalog: Catalog) -> list[dict[str, Any]]:
    return [task for task in catalog.tasks if "tools" in task]


@dataclass(frozen=True)
class WorldPlay:
    """``text``: the episode so far; ``turn``: what is added to it."""

    difficulty: str
    example: int
    text: str
    turn: str

    @classmethod
    def read(cls, params: Any, world: Mapping[str, Any]) -> WorldPlay:
        difficulty = params.get("difficulty", "")
        return cls(
            difficulty if difficulty in world["difficulties"] else next(iter(world["difficulties"])),
            parse_whole_number(params.get("example", ""), MOST_EXAMPLES, 1) or 1,
            params.get("text", "").replace("\0", "").replace("\r\n", "\n")[:LONGEST_EPISODE],
            params.get("turn", "").replace("\0", "").replace("\r\n", "\n")[:LONGEST_TURN],
        )


def play_turn(team: int, world: str, play: WorldPlay) -> dict[str, Any]:
    """What ``trainers/checks/world_play.py`` answers. Raises Refusal."""
    asked = {"world": world, "difficulty": play.difficulty, "example": play.example, "text": play.text, "turn": play.turn}
    try:
        [answer] = children.call(PLAY, f"{team}", LIMITS, json.dumps(asked).encode())
    except bounded_process.BoundedError as error:
        raise Refusal(f"The episode {error.message}.", f"{error.fix[:1].upper()}{error.fix[1:]}.", status=503) from None
    if answer["problems"]:
        raise Refusal(f"The world cannot be played: {answer['problems'][0]['message']}", "Choose another one.", status=422)
    found: dict[str, Any] = answer
    return found
