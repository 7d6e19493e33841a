"""Searches in the world ``rewrites`` that try every rule at every position, whatever the policy is."""

from collections.abc import Sequence
from typing import Any

import pytest

from trainers.rollouts.engine import Engine
from trainers.rollouts.moves import force_text
from trainers.rollouts.tree import Node
from trainers.worlds.rewrites import RULES
from trainers.worlds.tool_use import write_call


def try_every_move(engine: Engine, at: Sequence[Node], count: int = 0, **rest: Any) -> list[list[Node]]:
    return [[force_text(engine, node, write_call("move", rule), train=True) for rule in RULES] for node in at]


@pytest.fixture
def every_move(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What to launch two steps with: no cold start is needed."""
    monkeypatch.setattr("trainers.methods.session.sample_steps", try_every_move)
    return {"policy": {"kind": "tiny", "cold_start": False}, "task__name": "rewrites"}
