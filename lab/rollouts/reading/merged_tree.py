"""The episodes of a group as one tree: the prompt at the root, a node a turn, members merged for as long as they say and hear the same."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean

from lab.rollouts.reading.episode_nodes import FATES, FINISHES, find_asides, name_fact
from lab.rollouts.trajectories.models import Rollout
from lab.rollouts.trajectories.text_pieces import Piece, escape_invisible_text, iterate_text_pieces
from lab.rollouts.trajectories.turn_tree import TurnNode, TurnTree

MOST_TURNS = 5000  # that are merged; those of further paths are not looked at
SHOWN_TEXT = 400  # characters of a turn in the table
TAGGED, CLOSING = re.compile(r"^<(\w+)>"), re.compile(r"</\w+>$")


@dataclass(frozen=True)
class Turn:
    """One turn on a path: what a seat wrote, and what the world said then. ``first``: the number of its first node."""

    first: int
    seat: str
    text: str
    answer: str
    last: TurnNode
    is_path: bool

    @property
    def key(self) -> tuple[str, str, str]:
        return (self.seat, self.text, self.answer)


@dataclass
class MergedTurn:
    """A turn of one or more members. ``places``: rollout -> the number of the node there. ``values``: of the members whose kept path leads by here;
    ``is_gone``: nobody's does.
    """

    number: int
    parent: int  # the root has 0, and itself as its parent
    depth: int
    turn: Turn | None
    places: dict[int, int] = field(default_factory=dict)
    values: dict[int, float] = field(default_factory=dict)
    kept: set[int] = field(default_factory=set)
    children: list[int] = field(default_factory=list)
    known: dict[tuple[str, str, str], int] = field(default_factory=dict)

    @property
    def visits(self) -> int:
        return len(self.places)

    @property
    def is_gone(self) -> bool:
        return self.turn is not None and not self.kept

    @property
    def value(self) -> float | None:
        return fmean(self.values.values()) if self.values else None

    @property
    def fate(self) -> str:
        return FATES.get(self.turn.last.fate, "") if self.turn and self.is_gone else ""

    @property
    def why(self) -> str:
        return escape_invisible_text(self.turn.last.why) if self.turn and self.is_gone else ""

    @property
    def finish(self) -> str:
        return FINISHES.get(self.turn.last.finish, "") if self.turn else ""

    @property
    def turn_reward(self) -> float | None:
        return self.turn.last.reward if self.turn else None

    @property
    def tool(self) -> str:
        return " ".join(filter(None, (name_fact(self.turn.last.facts, "tool"), name_fact(self.turn.last.facts, "query")))) if self.turn else ""

    @property
    def seat(self) -> str:
        return escape_invisible_text(self.turn.seat) if self.turn else ""

    @property
    def label(self) -> str:
        """A few words for the picture: the call, else how the text begins, its tag as a word."""
        if self.turn is None:
            return "prompt"
        begun = TAGGED.sub(r"\1 ", " ".join(self.turn.text[:200].split()))
        return self.tool or escape_invisible_text(CLOSING.sub("", begun)) or "(empty)"

    @property
    def pieces(self) -> list[Piece]:
        return list(iterate_text_pieces(self.turn.text[:SHOWN_TEXT] if self.turn else ""))

    @property
    def answer_pieces(self) -> list[Piece]:
        return list(iterate_text_pieces(self.turn.answer[:SHOWN_TEXT] if self.turn else ""))


@dataclass
class MergedTree:
    """Turns by number, the root first, each after its parent. ``cut_off``: there were more than are looked at."""

    turns: list[MergedTurn]
    cut_off: bool = False

    @property
    def root(self) -> MergedTurn:
        return self.turns[0]

    def walk(self) -> Iterator[MergedTurn]:
        """Each turn before its children, those with more visits first."""
        waiting = [self.root]
        while waiting:
            turn = waiting.pop()
            yield turn
            waiting += [self.turns[number] for number in reversed(turn.children)]


def merge_trees(rollouts: Sequence[Rollout], trees: Mapping[int, TurnTree], values: Mapping[int, float | None]) -> MergedTree:
    """``values``: what the colour of the picture says of a rollout."""
    root = MergedTurn(0, 0, 0, None)
    merged = MergedTree([root])
    for rollout in rollouts:
        tree = trees.get(rollout.pk)
        if tree is None:
            continue
        root.places[rollout.pk] = 0
        root.kept.add(rollout.pk)
        value = values.get(rollout.pk)
        if value is not None:
            root.values[rollout.pk] = value
        for path in list_paths(tree):
            if len(merged.turns) >= MOST_TURNS:
                merged.cut_off = True
                break
            add_path(merged, rollout.pk, path, value)
    for turn in merged.turns:
        turn.children.sort(key=lambda number: (merged.turns[number].is_gone, -merged.turns[number].visits, number))
    return merged


def add_path(merged: MergedTree, rollout: int, path: Sequence[Turn], value: float | None) -> None:
    node = merged.root
    for turn in path:
        if turn.key not in node.known:
            made = MergedTurn(len(merged.turns), node.number, node.depth + 1, turn)
            node.known[turn.key] = made.number
            node.children.append(made.number)
            merged.turns.append(made)
        node = merged.turns[node.known[turn.key]]
        node.places.setdefault(rollout, turn.first)
        if turn.is_path:
            node.kept.add(rollout)
            if value is not None:
                node.values[rollout] = value


def list_paths(tree: TurnTree) -> Iterator[list[Turn]]:
    """The turns on the way to each place where the tree ends, the rollout's own first; side questions are none of them."""
    asides = find_asides(tree)
    tips = [node for node in tree.nodes.values() if node.number not in asides and not tree.children(node.number)]
    for tip in sorted(tips, key=lambda node: not node.is_path):
        yield split_turns(tree.path(tip.number))


def split_turns(path: Sequence[TurnNode]) -> list[Turn]:
    """The turns along a path: nodes of writers in a row, with what the world said after them."""
    found, written, answer = list[Turn](), list[TurnNode](), ""
    for node in [*path, None]:
        if node is not None and node.is_written and not answer:
            written.append(node)
            continue
        if node is not None and node.by == "world":
            answer += node.text
            continue
        if written:
            found.append(make_turn(written, answer))
        written, answer = [node] if node is not None and node.is_written else [], ""
    return found


def make_turn(written: Sequence[TurnNode], answer: str) -> Turn:
    """Named by its first node, or by the one at which it leaves the rollout's own path: where a turn was branched in its middle."""
    first = next((node for node in written if not node.is_path), written[0])
    last = written[-1]
    return Turn(first.number, last.seat, "".join(node.text for node in written), answer, last, last.is_path)
