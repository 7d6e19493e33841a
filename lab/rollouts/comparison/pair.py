"""Two rollouts beside each other: their texts with what differs marked, and every number of one minus the other's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from lab.lib.diff import DiffSpan, diff_words
from lab.lib.numbers import NONE, format_number
from lab.rollouts.comparison.divergence import Alternative, Divergence, build_completion_side, find_divergence
from lab.rollouts.trajectories.cards import Chip, format_signed_value
from lab.rollouts.trajectories.models import Rollout, RolloutTokens
from lab.rollouts.trajectories.text_pieces import Piece, escape_invisible_text, iterate_text_pieces

CUT = 40_000  # characters of a completion that are compared and shown


@dataclass(frozen=True)
class DiffSegment:
    """A stretch of one text: ``only`` here, or in both; ``mark`` where the first difference is."""

    text: str
    only: bool
    mark: bool = False
    anchor: bool = False  # the first that is marked

    @property
    def pieces(self) -> list[Piece]:
        return list(iterate_text_pieces(self.text))


@dataclass(frozen=True)
class MeasurementRow:
    """One measurement of both; ``delta`` is the second minus the first where both are numbers."""

    name: str
    left: str
    right: str
    delta: float | None
    unit: str = ""

    @property
    def tone(self) -> str:
        return "" if not self.delta else "good" if self.delta > 0 else "bad"

    @property
    def change(self) -> str:
        return NONE if self.delta is None else format_signed_value(self.delta)


@dataclass(frozen=True)
class PairColumn:
    letter: str
    rollout: Rollout
    segments: list[DiffSegment]
    cut: int  # characters that are not shown

    @property
    def anchored(self) -> bool:
        return any(segment.anchor for segment in self.segments)


@dataclass(frozen=True)
class RolloutPair:
    columns: tuple[PairColumn, PairColumn]
    rewards: list[MeasurementRow]
    measures: list[MeasurementRow]
    divergence: Divergence | None
    same_prompt: bool

    @property
    def alternatives(self) -> list[tuple[Alternative, PairColumn]]:
        divergence = self.divergence
        return list(zip((divergence.left, divergence.right), self.columns, strict=True)) if divergence else []

    @property
    def anchor(self) -> str:
        """Where on the page the first difference is marked."""
        return next((f"difference-{column.letter}" for column in self.columns if column.anchored), "divergence")


def read_pair(left: Rollout, right: Rollout, ignore_space: bool) -> RolloutPair:
    tokens = {row.rollout_id: row for row in RolloutTokens.objects.filter(rollout__in=[left, right])}
    sides = [build_completion_side(rollout, tokens.get(rollout.pk), rollout.run.special_tokens) for rollout in (left, right)]
    divergence = find_divergence(*sides)
    first, second = left.completion[:CUT], right.completion[:CUT]
    return RolloutPair(
        columns=(
            build_pair_column("A", left, diff_words(second, first, ignore_space), divergence.left if divergence else None),
            build_pair_column("B", right, diff_words(first, second, ignore_space), divergence.right if divergence else None),
        ),
        rewards=build_reward_rows(left, right),
        measures=build_measure_rows(left, right),
        divergence=divergence,
        same_prompt=left.prompt_id == right.prompt_id,
    )


def build_pair_column(letter: str, rollout: Rollout, spans: list[DiffSpan], alternative: Alternative | None) -> PairColumn:
    """``spans`` lead to this rollout's text, so that "added" is what only it has."""
    mine = [DiffSegment(span.text, span.kind == "added") for span in spans if span.kind != "removed"]
    if alternative and not alternative.ended and not alternative.special:
        mine = mark_difference_segments(mine, alternative.offset, alternative.offset + len(alternative.text))
    return PairColumn(letter, rollout, mine, max(0, len(rollout.completion) - CUT))


def mark_difference_segments(segments: list[DiffSegment], start: int, stop: int) -> list[DiffSegment]:
    """The segments cut so that the characters from ``start`` to ``stop`` stand in marked ones."""
    marked, at = [], 0
    for segment in segments:
        edges = [0, *sorted({min(max(edge - at, 0), len(segment.text)) for edge in (start, stop)}), len(segment.text)]
        for low, high in pairwise(edges):
            if high > low:
                inside = start <= at + low and at + high <= stop
                marked.append(DiffSegment(segment.text[low:high], segment.only, inside, inside and at + low == start))
        at += len(segment.text)
    return marked


def build_reward_rows(left: Rollout, right: Rollout) -> list[MeasurementRow]:
    """The total first, then each component that either has."""
    mine, theirs = parse_component_values(left.rewards), parse_component_values(right.rewards)
    names = list(dict.fromkeys([*mine, *theirs]))
    return [
        build_reward_row("total", left.reward, right.reward),
        *(build_reward_row(escape_invisible_text(name), mine.get(name), theirs.get(name)) for name in names),
    ]


def parse_component_values(given: Any) -> dict[str, float | None]:
    return {name: value if isinstance(value, int | float) else None for name, value in given.items()} if isinstance(given, dict) else {}


def build_measure_rows(left: Rollout, right: Rollout) -> list[MeasurementRow]:
    measured: tuple[tuple[str, Callable[[Rollout], float | None], str], ...] = (
        ("length", lambda rollout: rollout.length, "tokens"),
        ("mean entropy", lambda rollout: rollout.mean_entropy, "nats"),
        ("max entropy", lambda rollout: rollout.max_entropy, "nats"),
        ("step", lambda rollout: rollout.step, ""),
    )
    rows = [
        MeasurementRow(name, format_number(read(left)), format_number(read(right)), subtract_optional(read(left), read(right)), unit)
        for name, read, unit in measured
    ]
    return [
        build_reward_row("advantage", left.advantage, right.advantage),
        *rows,
        MeasurementRow("finish reason", escape_invisible_text(left.finish_reason) or NONE, escape_invisible_text(right.finish_reason) or NONE, None),
    ]


def build_reward_row(name: str, left: float | None, right: float | None) -> MeasurementRow:
    return MeasurementRow(name, Chip(name, left).text, Chip(name, right).text, subtract_optional(left, right))


def subtract_optional(left: float | None, right: float | None) -> float | None:
    return right - left if left is not None and right is not None else None
