"""The tree of an episode as the rollout event carries it: no ids and no states, texts only of what the rollout's own tokens do not hold."""

import math
from collections.abc import Sequence
from typing import Any

import msgspec

from trainers.attempt.telemetry import to_storable_text
from trainers.contract.events import MOST_NODE_TEXT, RolloutNode
from trainers.rollouts.compile import Row
from trainers.rollouts.tree import Node

MOST_NODES = 200
MOST_WHY = 200
MOST_FACTS = 1500  # characters of a node's facts as JSON
MOST_BYTES = 64_000  # of all nodes as JSON; nodes beside the rollout's own path are left out beyond it
MOST_FACT_TEXT = 300
MOST_INTEGER = 2**53  # the largest that every reader of JSON takes as it is
DEEPEST = 4


def record_nodes(row: Row, others: Sequence[Row]) -> list[RolloutNode]:
    """The nodes on the row's path, then what was cut, given up, folded away or asked beside it.

    ``others``: rows of other rollouts that share the tree; what is on their paths is theirs to tell, and what is on nobody's path is told once, by
    the first of them.
    """
    episode = row.episode
    path = episode.path(row.leaf)
    own = set(path)
    shared = [other for other in others if other.episode is episode and other is not row]
    theirs = {node for other in shared for node in episode.path(other.leaf)}
    tells = not shared or row.leaf.number <= min(other.leaf.number for other in shared)
    beside = [node for node in episode.nodes if tells and node not in own and node not in theirs and not node.is_blank]
    starts = locate_nodes(row)
    made = [record_node(node, starts) for node in (*path, *beside)[:MOST_NODES]]
    size, kept = 0, list[RolloutNode]()
    for place, node in enumerate(made):
        size += len(msgspec.json.encode(node))
        if place >= len(path) and size > MOST_BYTES:
            break
        kept.append(node)
    return kept


def locate_nodes(row: Row) -> dict[int, tuple[int, int]]:
    """Number of a node -> [start, end) of its tokens in the row."""
    found: dict[int, tuple[int, int]] = {}
    for place, number in enumerate(row.nodes):
        start, _ = found.get(number, (place, place))
        found[number] = (start, place + 1)
    return found


def record_node(node: Node, starts: dict[int, tuple[int, int]]) -> RolloutNode:
    start, end = starts.get(node.number, (-1, -1))
    return RolloutNode(
        number=node.number,
        parent=node.parent,
        seat=clean_text(node.seat, MOST_WHY),
        by=node.by,
        fate=node.fate,
        why=clean_text(node.why, MOST_WHY),
        reward=node.reward if node.reward is not None and math.isfinite(node.reward) else None,
        finish=node.finish,
        about=node.about,
        start=start,
        end=end,
        text="" if start >= 0 or node.number == 0 else clean_text(node.text, MOST_NODE_TEXT),
        facts=clean_facts(node.facts),
        notes={clean_text(name, MOST_WHY): float(value) for name, value in node.notes.items() if math.isfinite(value)},
    )


def clean_text(text: str, most: int) -> str:
    return to_storable_text(text if len(text) <= most else text[: most - 1] + "…")


def clean_facts(facts: dict[str, Any]) -> dict[str, Any]:
    """As JSON, storable, and no longer than they may be together: one that does not fit is left out, those after it are looked at."""
    kept, size = dict[str, Any](), 0
    for name, value in facts.items():
        one = {clean_text(str(name), MOST_WHY): clean_value(value)}
        length = len(msgspec.json.encode(one))
        if size + length <= MOST_FACTS:
            size += length
            kept |= one
    return kept


def clean_value(value: Any, depth: int = 0) -> Any:
    if isinstance(value, str):
        return clean_text(value, MOST_FACT_TEXT)
    if value is None or isinstance(value, bool | int):
        return value if value is None or abs(value) <= MOST_INTEGER else clean_text(hex(value), MOST_FACT_TEXT)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if depth >= DEEPEST:
        return "…"
    if isinstance(value, dict):
        return {clean_text(str(name), MOST_WHY): clean_value(one, depth + 1) for name, one in value.items()}
    return [clean_value(one, depth + 1) for one in value] if isinstance(value, list | tuple) else clean_text(str(value), MOST_FACT_TEXT)
