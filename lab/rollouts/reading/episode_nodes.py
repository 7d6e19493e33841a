"""The tree of turns behind a rollout, as a list: who wrote what, what the world said of it, and what was cut, given up or asked beside it.

What is stored comes from a trainer's spool and holds a model's words: every text is shown as text.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lab.rollouts.annotations.turn_labels import TurnLabel
from lab.rollouts.trajectories.text_pieces import Piece, escape_invisible_text, iterate_text_pieces
from lab.rollouts.trajectories.turn_tree import TurnNode, TurnTree, read_number

WRITERS = {"prompt": "prompt", "policy": "policy", "world": "environment", "forced": "given"}
FATES = {"cut": "cut", "abandoned": "abandoned"}
FINISHES = {"stop": "ended", "length": "cut off", "turns": "out of turns"}
CALL = ("tool", "query", "error", "evidence", "junk")  # facts that have a place of their own
SHOWN_FACT = 120  # characters of a fact
SEAT_COLOURS = 6


@dataclass(frozen=True)
class NodeLine:
    """``colour``: of its seat, from 0; the seat that comes first has 0. ``is_aside``: it belongs to a side question."""

    number: int
    depth: int
    seat: str
    writer: str
    pieces: list[Piece]
    colour: int = 0
    is_aside: bool = False
    fate: str = ""
    why: str = ""
    finish: str = ""
    reward: float | None = None
    about: int | None = None
    tool: str = ""
    query: str = ""
    error: str = ""
    evidence: int = 0
    is_junk: bool = False
    is_written: bool = False
    facts: list[tuple[str, str]] = field(default_factory=list)
    notes: list[tuple[str, float]] = field(default_factory=list)
    label: TurnLabel = field(default_factory=TurnLabel)


def list_nodes(tree: TurnTree, labels: Mapping[int, TurnLabel] | None = None) -> list[NodeLine]:
    """The nodes of the rollout, each below its parent."""
    made, seen = list[NodeLine](), set[int]()
    colours, asides = number_seats(tree), find_asides(tree)
    waiting = [(node, 0) for node in reversed(tree.children(None))]
    while waiting:
        node, depth = waiting.pop()
        if node.number in seen:
            continue
        seen.add(node.number)
        label = (labels or {}).get(node.number) or TurnLabel()
        made.append(read_node(node, depth, colours.get(node.seat, 0), node.number in asides, label))
        children = tree.children(node.number)
        # A turn after the other stands at the same depth; only where a path forks, its branches are set in.
        waiting += [(child, depth + (len(children) > 1)) for child in reversed(children)]
    return made


def number_seats(tree: TurnTree) -> dict[str, int]:
    """Seat -> its colour, in the order in which they come."""
    seats = dict.fromkeys(node.seat for node in tree.nodes.values())
    return {seat: place % SEAT_COLOURS for place, seat in enumerate(seats)}


def find_asides(tree: TurnTree) -> set[int]:
    """Nodes of side questions, which the world does not hear."""
    found, waiting = set[int](), [node for node in tree.nodes.values() if node.about is not None]
    while waiting:
        node = waiting.pop()
        if node.number not in found:
            found.add(node.number)
            waiting += tree.children(node.number)
    return found


def read_node(node: TurnNode, depth: int, colour: int, is_aside: bool, label: TurnLabel) -> NodeLine:
    facts, evidence = node.facts, node.facts.get("evidence")
    return NodeLine(
        number=node.number,
        depth=min(depth, 8),
        seat=escape_invisible_text(node.seat),
        writer=WRITERS.get(node.by, escape_invisible_text(node.by)),
        pieces=list(iterate_text_pieces(node.text)),
        colour=colour,
        is_aside=is_aside,
        fate=FATES.get(node.fate, ""),
        why=escape_invisible_text(node.why),
        finish=FINISHES.get(node.finish, ""),
        reward=node.reward,
        about=node.about,
        tool=name_fact(facts, "tool"),
        query=name_fact(facts, "query"),
        error=name_fact(facts, "error"),
        evidence=len(evidence) if isinstance(evidence, list) else int(bool(evidence)),
        is_junk=bool(facts.get("junk")),
        is_written=node.is_written,
        facts=[(escape_invisible_text(str(name)), show_fact(value)) for name, value in facts.items() if name not in CALL],
        notes=[(escape_invisible_text(str(name)), number) for name, value in node.notes.items() if (number := read_number(value)) is not None],
        label=label,
    )


def name_fact(facts: Mapping[str, Any], name: str) -> str:
    value = facts.get(name)
    return show_fact(value) if value not in (None, "", False) else ""


def show_fact(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return escape_invisible_text(text if len(text) <= SHOWN_FACT else text[: SHOWN_FACT - 1] + "…")


def count_branches(lines: Sequence[NodeLine]) -> int:
    """Nodes that are not on the rollout's own way."""
    return sum(bool(line.fate) or line.about is not None for line in lines)
