"""What a move in the world ``rooms`` is worth, by rule: which one the shortest way takes next, and how a judge is asked about it.

The rule knows where the key is, also where the option ``hidden`` keeps it from the policy. By rule, too, rows of rooms are made a little harder or
easier.
"""

import random
from typing import Any

from trainers.worlds.base import END_THINK, THINK, State

GOOD, BAD = "+", "-"
MOVES = ("left", "right", "take", "open")
FEWEST, MOST = 2, 6  # rooms of a row that is rewritten


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


def write_flawed_verdict(data: dict[str, Any], state: State, move: str, rng: random.Random) -> str:
    """The verdict of a judge who takes another move for the best."""
    best = rng.choice([one for one in MOVES if one != choose_move(data, state)])
    return f"{THINK}{best}{END_THINK}{GOOD if move == best else BAD}"


def draw_step(data: dict[str, Any], rng: random.Random) -> tuple[State, str]:
    """Somewhere in a row of rooms, and a move there: the best one or any, equally often."""
    state: State = {"at": rng.randint(1, data["rooms"]), "has_key": rng.random() < 0.5}
    return state, choose_move(data, state) if rng.random() < 0.5 else rng.choice(MOVES)


def count_way(data: dict[str, Any]) -> int:
    """Moves of the shortest way out."""
    return abs(data["key"] - data["at"]) + abs(data["door"] - data["key"]) + 2


def list_rewrites(data: dict[str, Any], harder: bool) -> list[dict[str, Any]]:
    """Rows that differ in one place by one room, or have one room more or less, and need more moves, or fewer."""
    found = [{**data, name: data[name] + by} for name in ("at", "key", "door") for by in (-1, 1)]
    for by in (-1, 1):  # with who stands in the last room, or the key or the door there, moving along
        rooms = data["rooms"] + by
        found += [{**data, "rooms": rooms, name: rooms} for name in ("at", "key", "door")]
    there = [one for one in found if FEWEST <= one["rooms"] <= MOST and all(1 <= one[name] <= one["rooms"] for name in ("at", "key", "door"))]
    return [one for one in there if (count_way(one) > count_way(data) if harder else count_way(one) < count_way(data))]
