"""Turns of the world ``rooms`` as a judge of steps is asked about them."""

from typing import TYPE_CHECKING

from trainers.worlds.base import State
from trainers.worlds.room_moves import MOVES, write_step_question

if TYPE_CHECKING:
    from trainers.rollouts.tree import Node


def find_state_before(turn: "Node") -> State:
    """The state of the world in which the turn that ends at a node was written."""
    above = turn.episode.parent(turn.episode.turn(turn)[0])
    assert above is not None
    return above.state


def ask_about_turn(turn: "Node") -> str:
    """The question about the move of a turn; empty for a turn that is no move."""
    move = turn.facts.get("query")
    return write_step_question(turn.episode.example.data, find_state_before(turn), move) if move in MOVES else ""
