"""The tree of turns that was stored with a rollout: its nodes, its own path through them, and the states at which it forks.

What is stored comes from a trainer's spool and holds a model's words: whatever is not of the expected shape is left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from lab.rollouts.trajectories.cards import lengths_of
from lab.rollouts.trajectories.models import Rollout
from trainers.contract.events import MOST_NODE_TEXT

StateKey = tuple[tuple[str, str], ...]  # (who, what) one after the other
WROTE = "wrote"
WRITTEN = ("policy", "forced")  # nodes that are, or are a part of, somebody's turn
MOST_NODES = 200  # of one rollout
SHORTENED = "…"  # what a text ends in that was too long to be stored


@dataclass(frozen=True)
class TurnNode:
    """``text``: what it adds. ``is_path``: whether it is on the rollout's own way; all others are beside it."""

    number: int
    parent: int | None
    by: str
    seat: str = "policy"
    text: str = ""
    fate: str = ""
    why: str = ""
    finish: str = ""
    reward: float | None = None
    about: int | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)
    notes: Mapping[str, Any] = field(default_factory=dict)
    is_path: bool = False
    is_shortened: bool = False  # a part of its text was not stored

    @property
    def is_written(self) -> bool:
        return self.by in WRITTEN

    @property
    def is_gone(self) -> bool:
        return self.fate in ("cut", "abandoned")


class TurnTree:
    """Nodes by number, in the order they are stored: the rollout's own path first, then what stands beside it."""

    def __init__(self, nodes: Iterable[TurnNode]) -> None:
        self.nodes: dict[int, TurnNode] = {}
        for node in nodes:
            self.nodes.setdefault(node.number, node)

    @cached_property
    def below(self) -> dict[int | None, list[TurnNode]]:
        """Parent -> its children; a node whose parent is not stored, or is itself, begins at the top."""
        found: dict[int | None, list[TurnNode]] = {}
        for node in self.nodes.values():
            known = node.parent in self.nodes and node.parent != node.number
            found.setdefault(node.parent if known else None, []).append(node)
        return found

    def children(self, number: int | None) -> list[TurnNode]:
        return self.below.get(number, [])

    def path(self, number: int) -> list[TurnNode]:
        """From the top to the node."""
        found, seen, node = list[TurnNode](), set[int](), self.nodes.get(number)
        while node is not None and node.number not in seen:
            found.append(node)
            seen.add(node.number)
            node = self.nodes.get(node.parent) if node.parent is not None else None
        return found[::-1]

    def branches(self, state: int) -> list[TurnNode]:
        """The nodes by which turns go on from a state; the rollout's own first."""
        return sorted((node for node in self.children(state) if node.is_written), key=lambda node: (not node.is_path, node.is_gone))

    @cached_property
    def forks(self) -> dict[int, list[TurnNode]]:
        """State -> its branches, where there are several; in the order of the states."""
        states = {node.number: self.branches(node.number) for node in self.nodes.values()}
        return {state: branches for state, branches in states.items() if len(branches) > 1}

    def siblings(self, number: int) -> list[TurnNode]:
        """The other branches of the state that the node goes on from."""
        node = self.nodes.get(number)
        return [] if node is None or node.parent is None else [one for one in self.branches(node.parent) if one.number != number]

    def turn(self, number: int) -> list[TurnNode]:
        """The node and what follows it in the same turn: where that forks again, its own path, else what was kept."""
        found, seen = list[TurnNode](), set[int]()
        node = self.nodes.get(number)
        while node is not None and node.is_written and node.number not in seen:
            found.append(node)
            seen.add(node.number)
            node = next(iter(self.branches(node.number)), None)
        return found

    def turn_text(self, number: int) -> str:
        return "".join(node.text for node in self.turn(number))

    def list_path_states(self) -> Iterator[tuple[StateKey, int, int]]:
        """(what was said until then, state, node by which it goes on) where a turn begins on the rollout's own path."""
        said = list[tuple[str, str]]()
        for node in (one for one in self.nodes.values() if one.is_path):
            is_going_on = bool(said) and said[-1][0] == WROTE
            if node.is_written and node.parent is not None and not is_going_on:
                yield tuple(said), node.parent, node.number
            if node.is_written and is_going_on:
                said[-1] = (WROTE, said[-1][1] + node.text)
            elif node.number or node.by != "prompt":
                said.append((WROTE if node.is_written else node.by, node.text))

    def find_state(self, number: int) -> StateKey | None:
        """What was said before the turn that begins at a node of the rollout's own path; None for other nodes."""
        return next((key for key, _, first in self.list_path_states() if first == number), None)

    def rest(self, number: int) -> list[TurnNode]:
        """The node and all that follows it on the way that was gone: the suffix that a cut discards, or the one that came in its place."""
        found, seen = list[TurnNode](), set[int]()
        node = self.nodes.get(number)
        while node is not None and node.number not in seen:
            found.append(node)
            seen.add(node.number)
            node = min(self.children(node.number), key=lambda one: (not one.is_path, one.is_gone), default=None)
        return found


def is_node(node: Any) -> bool:
    return isinstance(node, dict) and isinstance(node.get("number"), int) and isinstance(node.get("by"), str)


def read_stored_nodes(rollout: Rollout) -> list[dict[str, Any]]:
    """``RolloutNode`` each, as JSON; ingest stores what the spool has of them without a look."""
    return [node for node in rollout.nodes if is_node(node)] if isinstance(rollout.nodes, list) else []


def find_ends(completion: str, lengths: npt.NDArray[np.int64] | None) -> npt.NDArray[np.int64]:
    """(T + 1,) code points before each place; of a rollout whose token arrays are gone its places are code points."""
    if lengths is None:
        return np.zeros(1, dtype=np.int64)
    return np.concatenate([[0], np.cumsum(lengths)]) if len(lengths) else np.arange(len(completion) + 1)


def read_node_text(node: Mapping[str, Any], completion: str, ends: npt.NDArray[np.int64]) -> str:
    """Its part of the completion, or the text it was stored with."""
    start, end = node.get("start", -1), node.get("end", -1)
    if isinstance(start, int) and isinstance(end, int) and 0 <= start <= end < len(ends):
        return completion[int(ends[start]) : int(ends[end])]
    return str(node.get("text", ""))


def read_mapping(node: Mapping[str, Any], name: str) -> dict[str, Any]:
    value = node.get(name)
    return value if isinstance(value, dict) else {}


def read_number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def read_turn_tree(rollout: Rollout, lengths: npt.NDArray[np.int64] | None) -> TurnTree:
    """``lengths`` (T,): code points of each of its tokens; None: not known."""
    stored = read_stored_nodes(rollout)[:MOST_NODES]
    ends = find_ends(rollout.completion, lengths)
    own = count_path_nodes(stored)
    return TurnTree(read_turn_node(node, read_node_text(node, rollout.completion, ends), place < own) for place, node in enumerate(stored))


def count_path_nodes(stored: list[dict[str, Any]]) -> int:
    """How many nodes at the beginning of the list follow one from the other: the path is stored first."""
    for place in range(1, len(stored)):
        if stored[place].get("parent") != stored[place - 1]["number"]:
            return place
    return len(stored)


def read_turn_node(node: Mapping[str, Any], text: str, is_path: bool) -> TurnNode:
    parent, about, start = node.get("parent"), node.get("about"), node.get("start", -1)
    is_beside = not isinstance(start, int) or start < 0
    return TurnNode(
        number=node["number"],
        parent=parent if isinstance(parent, int) else None,
        by=node["by"],
        seat=str(node.get("seat", "policy")),
        text=text,
        fate=str(node.get("fate", "")),
        why=str(node.get("why", "")),
        finish=str(node.get("finish", "")),
        reward=read_number(node.get("reward")),
        about=about if isinstance(about, int) else None,
        facts=read_mapping(node, "facts"),
        notes=read_mapping(node, "notes"),
        is_path=is_path,
        is_shortened=is_beside and len(text) >= MOST_NODE_TEXT and text.endswith(SHORTENED),
    )


def read_turn_trees(rollouts: Iterable[Rollout]) -> dict[int, TurnTree]:
    """The trees of rollouts by id, with one query for the lengths of their tokens. Those without nodes are missing."""
    with_nodes = [rollout for rollout in rollouts if rollout.nodes]
    lengths = lengths_of(with_nodes)
    return {rollout.pk: read_turn_tree(rollout, lengths.get(rollout.pk)) for rollout in with_nodes}
