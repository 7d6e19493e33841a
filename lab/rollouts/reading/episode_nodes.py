"""The tree of turns behind a rollout, as a list: who wrote what, what the world said of it, and what was cut, given up or asked beside it.

What is stored comes from a trainer's spool and holds a model's words: whatever is not of the expected shape is left out, and every text is shown as
text.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from lab.rollouts.trajectories.models import Rollout
from lab.rollouts.trajectories.text_pieces import Piece, escape_invisible_text, iterate_text_pieces

WRITERS = {"prompt": "prompt", "policy": "policy", "world": "environment", "forced": "given"}
FATES = {"cut": "cut", "abandoned": "abandoned"}
FINISHES = {"stop": "ended", "length": "cut off", "turns": "out of turns"}
CALL = ("tool", "query", "error", "evidence", "junk")  # facts that have a place of their own
MOST_LINES = 200
SHOWN_FACT = 120  # characters of a fact


@dataclass(frozen=True)
class NodeLine:
    number: int
    depth: int
    seat: str
    writer: str
    pieces: list[Piece]
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
    facts: list[tuple[str, str]] = field(default_factory=list)
    notes: list[tuple[str, float]] = field(default_factory=list)


def list_nodes(rollout: Rollout, lengths: npt.NDArray[np.int64] | None) -> list[NodeLine]:
    """The nodes of the rollout, each below its parent. ``lengths`` (T,): code points of each of its tokens; None: not known."""
    stored = [node for node in rollout.nodes if is_node(node)][:MOST_LINES] if isinstance(rollout.nodes, list) else []
    ends = find_ends(rollout.completion, lengths)
    below: dict[int | None, list[dict[str, Any]]] = {}
    known = {node["number"] for node in stored}
    for node in stored:
        parent = node.get("parent")
        below.setdefault(parent if parent in known and parent != node["number"] else None, []).append(node)
    made, seen = list[NodeLine](), set[int]()
    waiting = [(node, 0) for node in reversed(below.get(None, []))]
    while waiting:
        node, depth = waiting.pop()
        if node["number"] in seen:
            continue
        seen.add(node["number"])
        made.append(read_node(node, depth, read_text(node, rollout.completion, ends)))
        children = below.get(node["number"], [])
        # A turn after the other stands at the same depth; only where a path forks, its branches are set in.
        waiting += [(child, depth + (len(children) > 1)) for child in reversed(children)]
    return made


def find_ends(completion: str, lengths: npt.NDArray[np.int64] | None) -> npt.NDArray[np.int64]:
    """(T + 1,) code points before each place; of a rollout whose token arrays are gone its places are code points."""
    if lengths is None:
        return np.zeros(1, dtype=np.int64)
    return np.concatenate([[0], np.cumsum(lengths)]) if len(lengths) else np.arange(len(completion) + 1)


def is_node(node: Any) -> bool:
    return isinstance(node, dict) and isinstance(node.get("number"), int) and isinstance(node.get("by"), str)


def read_text(node: dict[str, Any], completion: str, ends: npt.NDArray[np.int64]) -> str:
    """Its part of the completion, or the text it was stored with."""
    start, end = node.get("start", -1), node.get("end", -1)
    if isinstance(start, int) and isinstance(end, int) and 0 <= start <= end < len(ends):
        return completion[int(ends[start]) : int(ends[end])]
    return str(node.get("text", ""))


def read_node(node: dict[str, Any], depth: int, text: str) -> NodeLine:
    facts, notes = read_mapping(node, "facts"), read_mapping(node, "notes")
    evidence, about = facts.get("evidence"), node.get("about")
    return NodeLine(
        number=node["number"],
        depth=min(depth, 8),
        seat=escape_invisible_text(str(node.get("seat", "policy"))),
        writer=WRITERS.get(node["by"], escape_invisible_text(node["by"])),
        pieces=list(iterate_text_pieces(text)),
        fate=FATES.get(str(node.get("fate", "")), ""),
        why=escape_invisible_text(str(node.get("why", ""))),
        finish=FINISHES.get(str(node.get("finish", "")), ""),
        reward=read_number(node.get("reward")),
        about=about if isinstance(about, int) else None,
        tool=name_fact(facts, "tool"),
        query=name_fact(facts, "query"),
        error=name_fact(facts, "error"),
        evidence=len(evidence) if isinstance(evidence, list) else int(bool(evidence)),
        is_junk=bool(facts.get("junk")),
        facts=[(escape_invisible_text(str(name)), show_fact(value)) for name, value in facts.items() if name not in CALL],
        notes=[(escape_invisible_text(str(name)), number) for name, value in notes.items() if (number := read_number(value)) is not None],
    )


def read_mapping(node: dict[str, Any], name: str) -> dict[str, Any]:
    value = node.get(name)
    return value if isinstance(value, dict) else {}


def read_number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def name_fact(facts: dict[str, Any], name: str) -> str:
    value = facts.get(name)
    return show_fact(value) if value not in (None, "", False) else ""


def show_fact(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return escape_invisible_text(text if len(text) <= SHOWN_FACT else text[: SHOWN_FACT - 1] + "…")


def count_branches(lines: Sequence[NodeLine]) -> int:
    """Nodes that are not on the rollout's own way."""
    return sum(bool(line.fate) or line.about is not None for line in lines)
