"""Reward functions and the inputs of their editor."""

from typing import Any

from lab.teams.accounts.models import Team, User
from lab.training.rewards.models import RewardVersion
from lab.training.rewards.verbs import create_function

EXACT = {"kind": "library", "function": "exact-match", "config": {}}
LENGTH_CODE = {"kind": "code", "source": "def score(completion, reference, data):\n    return len(completion) + data.get('more', 0)\n"}


def make_function(team: Team, user: User | None, name: str = "exact", definition: Any = EXACT) -> RewardVersion:
    return create_function(team, user, name, definition)


def editor_inputs(kind: str, **changes: str) -> dict[str, str]:
    """What a browser sends of a new function. ``__`` in a name stands for a dot."""
    given = {"name": "mine", "note": "", "kind": kind, "was": kind, "parts": "0", "rows": "1", "act": "make"}
    return given | {name.replace("__", "."): value for name, value in changes.items()}
