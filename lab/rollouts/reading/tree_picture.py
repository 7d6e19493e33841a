"""Where the turns of a merged tree stand in its picture: depth from left to right, a line for each leaf. Positions only; the template draws."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lab.rollouts.reading.merged_tree import MergedTree, MergedTurn

MOST_DRAWN = 500  # turns
COLUMN, LINE, MARGIN = 176, 44, 14  # pixels
THINNEST, THICKEST = 1.5, 10.0  # of an edge
RADIUS = 6
COLOURS = 7  # from the lowest value to the highest
LABEL, REASON = 18, 24  # characters
ROOM = 48  # pixels behind the last column, where a label is as long as it may be


@dataclass(frozen=True)
class DrawnTurn:
    """``colour``: 0 to COLOURS - 1, None where no value is known. ``rollout`` and ``node``: where a click leads."""

    turn: MergedTurn
    x: float
    y: float
    edge: str
    width: float
    colour: int | None
    label: str
    reason: str
    rollout: int
    node: int

    @property
    def text_at(self) -> tuple[float, float]:
        return self.x + RADIUS + 2, self.y - 9

    @property
    def reason_at(self) -> tuple[float, float]:
        return self.x + RADIUS + 2, self.y + 17


@dataclass(frozen=True)
class TreePicture:
    turns: list[DrawnTurn]
    width: int
    height: int
    lowest: float | None
    highest: float | None
    left_out: int

    @property
    def is_even(self) -> bool:
        """Whether all values are the same."""
        return self.lowest == self.highest


def draw_tree(tree: MergedTree, values: Mapping[int, float | None]) -> TreePicture:
    """``values``: of the rollouts, whose best one a click on a turn leads to."""
    chosen = choose_drawn_turns(tree)
    order = [turn for turn in tree.walk() if turn.number in chosen]
    lines = place_lines(tree, chosen)
    known = [value for turn in order if (value := turn.value) is not None]
    lowest, highest = min(known, default=None), max(known, default=None)
    members = max(1, tree.root.visits)
    drawn = [draw_turn(tree, turn, lines, members, lowest, highest, values) for turn in order]
    width = MARGIN + ROOM + COLUMN * (1 + max(turn.depth for turn in order))
    height = round(MARGIN * 2 + LINE * (1 + max(lines.values())))
    return TreePicture(drawn, width, height, lowest, highest, len(tree.turns) - len(order))


def choose_drawn_turns(tree: MergedTree) -> set[int]:
    """All, or the most visited ones; a turn is never without its parent, which has at least its visits."""
    if len(tree.turns) <= MOST_DRAWN:
        return {turn.number for turn in tree.turns}
    ranked = sorted(tree.turns, key=lambda turn: (-turn.visits, turn.depth, turn.number))
    return {turn.number for turn in ranked[:MOST_DRAWN]}


def place_lines(tree: MergedTree, chosen: set[int]) -> dict[int, float]:
    """A leaf stands on a line of its own, a turn in the middle of its children."""
    lines: dict[int, float] = {}
    count = 0
    for turn in tree.walk():
        if turn.number in chosen and not any(child in chosen for child in turn.children):
            lines[turn.number] = float(count)
            count += 1
    for turn in sorted(tree.turns, key=lambda one: -one.depth):
        own = [lines[child] for child in turn.children if child in lines]
        if turn.number in chosen and own:
            lines[turn.number] = (own[0] + own[-1]) / 2
    return lines


def draw_turn(
    tree: MergedTree,
    turn: MergedTurn,
    lines: Mapping[int, float],
    members: int,
    lowest: float | None,
    highest: float | None,
    values: Mapping[int, float | None],
) -> DrawnTurn:
    x, y = locate_turn(turn, lines)
    from_x, from_y = locate_turn(tree.turns[turn.parent], lines)
    middle = (from_x + x) / 2
    edge = f"M{from_x:.1f} {from_y:.1f}C{middle:.1f} {from_y:.1f} {middle:.1f} {y:.1f} {x:.1f} {y:.1f}" if turn.number else ""
    rollout = max(turn.places, key=lambda pk: (pk in turn.kept, values.get(pk) is not None, values.get(pk) or 0.0, -pk), default=0)
    return DrawnTurn(
        turn=turn,
        x=x,
        y=y,
        edge=edge,
        width=round(THINNEST + (THICKEST - THINNEST) * turn.visits / members, 2),
        colour=choose_colour(turn.value, lowest, highest),
        label=shorten_label(turn.label, LABEL),
        reason=shorten_label(turn.why, REASON),
        rollout=rollout,
        node=turn.places.get(rollout, 0),
    )


def locate_turn(turn: MergedTurn, lines: Mapping[int, float]) -> tuple[float, float]:
    return MARGIN + RADIUS + COLUMN * turn.depth, MARGIN + LINE * (lines[turn.number] + 0.5)


def choose_colour(value: float | None, lowest: float | None, highest: float | None) -> int | None:
    if value is None or lowest is None or highest is None:
        return None
    return round((COLOURS - 1) * (value - lowest) / (highest - lowest)) if highest > lowest else COLOURS // 2


def shorten_label(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"
