"""What a move in the world ``rooms`` is worth, by rule: which one the shortest way takes next, and how a judge is asked about it.

The rule knows where the key is, also where the option ``hidden`` keeps it from the policy.
"""

from typing import Any

from trainers.worlds.base import END_THINK, THINK, State

GOOD, BAD = "+", "-"


def choose_move(data: dict[str, Any], state: State) -> str:
    """The next move of the shortest way: to the key, to the door, out. ``data``: of the example."""
    goal = data["door"] if state["has_key"] else data["key"]
    return "right" if goal > state["at"] else "left" if goal < state["at"] else "open" if state["has_key"] else "take"


def write_step_question(data: dict[str, Any], state: State, move: str) -> str:
    """Where somebody stands, and the move that is to be judged."""
    key = "You have the key." if state["has_key"] else f"The key is in room {data['key']}."
    return f"You are in room {state['at']} of {data['rooms']}. {key} The door is in room {data['door']}. {move}?"


def write_verdict(data: dict[str, Any], state: State, move: str) -> str:
    """What the rule says of a move: the move that it would make itself, as the reason, and its verdict."""
    best = choose_move(data, state)
    return f"{THINK}{best}{END_THINK}{GOOD if move == best else BAD}"


def parse_verdict(text: str) -> bool | None:
    """Whether a judge has called the move good; None for a text that is no verdict."""
    said = text.rpartition(END_THINK)[2].strip()
    return {GOOD: True, BAD: False}.get(said)
