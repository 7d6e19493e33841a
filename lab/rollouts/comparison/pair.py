"""Two rollouts beside each other: their texts with what differs marked, and every number of one minus the other's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from lab.lib.diff import Span, diff_words
from lab.lib.numbers import NONE, format_number
from lab.rollouts.comparison.divergence import Alternative, Divergence, build_completion_side, find_divergence
from lab.rollouts.trajectories.feed import Chip, format_signed_value
from lab.rollouts.trajectories.models import Rollout, RolloutTokens
from lab.rollouts.trajectories.text_pieces import Piece, escape_invisible_text, iterate_text_pieces

CUT = 40_000  # characters of a completion that are compared and shown


@dataclass(frozen=True)
class Segment:
    """A stretch of one text: ``only`` here, or in both; ``mark`` where the first difference is."""

    text: str
    only: bool
    mark: bool = False
    anchor: bool = False  # the first that is marked

    @property
    def pieces(self) -> list[Piece]:
        return list(iterate_text_pieces(self.text))


@dataclass(frozen=True)
class Row:
    """One measurement of both; ``delta`` is the second minus the first where both are numbers."""

    name: str
    one: str
    other: str
    delta: float | None
    unit: str = ""

    @property
    def tone(self) -> str:
        return "" if not self.delta else "good" if self.delta > 0 else "bad"

    @property
    def change(self) -> str:
        return NONE if self.delta is None else format_signed_value(self.delta)


@dataclass(frozen=True)
class Column:
    letter: str
    rollout: Rollout
    segments: list[Segment]
    cut: int  # characters that are not shown

    @property
    def anchored(self) -> bool:
        return any(segment.anchor for segment in self.segments)


@dataclass(frozen=True)
class Pair:
    columns: tuple[Column, Column]
    rewards: list[Row]
    measures: list[Row]
    divergence: Divergence | None
    same_prompt: bool

    @property
    def alternatives(self) -> list[tuple[Alternative, Column]]:
        found = self.divergence
        return list(zip((found.one, found.other), self.columns, strict=True)) if found else []

    @property
    def anchor(self) -> str:
        """Where on the page the first difference is marked."""
        return next((f"difference-{column.letter}" for column in self.columns if column.anchored), "divergence")


def read_pair(one: Rollout, other: Rollout, ignore_space: bool) -> Pair:
    tokens = {row.rollout_id: row for row in RolloutTokens.objects.filter(rollout__in=[one, other])}
    sides = [build_completion_side(rollout, tokens.get(rollout.pk), rollout.run.special_tokens) for rollout in (one, other)]
    found = find_divergence(*sides)
    first, second = one.completion[:CUT], other.completion[:CUT]
    return Pair(
        columns=(
            build_pair_column("A", one, diff_words(second, first, ignore_space), found.one if found else None),
            build_pair_column("B", other, diff_words(first, second, ignore_space), found.other if found else None),
        ),
        rewards=build_reward_rows(one, other),
        measures=build_measure_rows(one, other),
        divergence=found,
        same_prompt=one.prompt_id == other.prompt_id,
    )


def build_pair_column(letter: str, rollout: Rollout, spans: list[Span], place: Alternative | None) -> Column:
    """``spans`` lead to this rollout's text, so that "added" is what only it has."""
    mine = [Segment(span.text, span.kind == "added") for span in spans if span.kind != "removed"]
    if place and not place.ended and not place.special:
        mine = mark_difference_segments(mine, place.offset, place.offset + len(place.text))
    return Column(letter, rollout, mine, max(0, len(rollout.completion) - CUT))


def mark_difference_segments(segments: list[Segment], start: int, stop: int) -> list[Segment]:
    """The segments cut so that the characters from ``start`` to ``stop`` stand in marked ones."""
    found, at = [], 0
    for one in segments:
        edges = [0, *sorted({min(max(edge - at, 0), len(one.text)) for edge in (start, stop)}), len(one.text)]
        for low, high in pairwise(edges):
            if high > low:
                inside = start <= at + low and at + high <= stop
                found.append(Segment(one.text[low:high], one.only, inside, inside and at + low == start))
        at += len(one.text)
    return found


def build_reward_rows(one: Rollout, other: Rollout) -> list[Row]:
    """The total first, then each component that either has."""
    mine, theirs = parse_component_values(one.rewards), parse_component_values(other.rewards)
    names = list(dict.fromkeys([*mine, *theirs]))
    return [
        build_reward_row("total", one.reward, other.reward),
        *(build_reward_row(escape_invisible_text(name), mine.get(name), theirs.get(name)) for name in names),
    ]


def parse_component_values(given: Any) -> dict[str, float | None]:
    return {name: value if isinstance(value, int | float) else None for name, value in given.items()} if isinstance(given, dict) else {}


def build_measure_rows(one: Rollout, other: Rollout) -> list[Row]:
    wanted: tuple[tuple[str, Callable[[Rollout], float | None], str], ...] = (
        ("length", lambda rollout: rollout.length, "tokens"),
        ("mean entropy", lambda rollout: rollout.mean_entropy, "nats"),
        ("max entropy", lambda rollout: rollout.max_entropy, "nats"),
        ("step", lambda rollout: rollout.step, ""),
    )
    found = [
        Row(name, format_number(read(one)), format_number(read(other)), subtract_optional(read(one), read(other)), unit)
        for name, read, unit in wanted
    ]
    return [
        build_reward_row("advantage", one.advantage, other.advantage),
        *found,
        Row("finish reason", escape_invisible_text(one.finish_reason), escape_invisible_text(other.finish_reason), None),
    ]


def build_reward_row(name: str, one: float | None, other: float | None) -> Row:
    return Row(name, Chip(name, one).text, Chip(name, other).text, subtract_optional(one, other))


def subtract_optional(one: float | None, other: float | None) -> float | None:
    return other - one if one is not None and other is not None else None
