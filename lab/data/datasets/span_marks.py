"""Spans of rows: the characters of an answer that its labellers together call good or bad, for trainers that weigh tokens. Pure.

Marked spans decide over marked steps where they overlap. Of labellers who mark the same tokens the larger side (by the rule's weights) decides; where
two sides are equal, or agree less than the rule asks, the tokens are unmarked. An adjudicated answer decides alone where it has marks.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice, pairwise
from typing import Any

from lab.data.datasets.rules import DatasetRule
from lab.data.datasets.sides import SourceRollout
from lab.data.datasets.step_marks import SIDES, Weight, steps_said
from lab.data.datasets.votes import JudgedItem, marks_of
from lab.labelling.labels.models import Kind
from trainers.contract.spans import BAD, GOOD, Span, SpanError, answer_text, read_spans

BATCH = 200  # rollouts whose tokens are in memory at once
UNPLACED = "marked spans of answers whose tokens are not stored"
Stretch = tuple[int, int, int]  # tokens [start, end) and 1 good, -1 bad
Edges = Callable[[Iterable[int]], Mapping[int, Sequence[int]]]  # rollouts -> where each token begins in the answer, and its end


@dataclass(frozen=True)
class MarkedAnswer:
    """What was marked in one rollout: ``stretches`` in order, without overlap, and who said it in which queue. ``spans``: over its characters."""

    stretches: tuple[Stretch, ...]
    labellers: tuple[int, ...]
    queue: int
    spans: tuple[Span, ...] = ()


def resolve_item_marks(judged: JudgedItem, rule: DatasetRule, weight: Weight) -> MarkedAnswer | None:
    """The marks of a single answer; None where nobody marked anything that counts."""
    if judged.kind != Kind.SINGLE or not judged.rollouts:
        return None
    steps = [(step.start, step.end, 1 if step.good else -1) for step in steps_said(judged, replace(rule, neutral="leave"), weight) if not step.why]
    stretches = tuple(lay_over(steps, list(decide_span_stretches(judged, rule, weight))))
    labellers = sorted({vote.user for vote in judged.votes if vote.steps or vote.spans})
    return MarkedAnswer(stretches, tuple(labellers), judged.queue) if stretches else None


def decide_span_stretches(judged: JudgedItem, rule: DatasetRule, weight: Weight) -> Iterator[Stretch]:
    """The side of every token that somebody marked as part of a span, joined into stretches."""
    if decided := marks_of((judged.final or {}).get("spans")):
        yield from sorted((span.start, span.end, SIDES.get(span.mark, 0)) for span in decided)
        return
    if rule.aggregation == "adjudicated":
        return
    changes: defaultdict[int, dict[int, float]] = defaultdict(lambda: {1: 0.0, -1: 0.0})  # token -> weight that begins or ends there, by side
    for vote in judged.votes:
        for span in vote.spans:
            if side := SIDES.get(span.mark, 0):
                changes[span.start][side] += weight(vote)
                changes[span.end][side] -= weight(vote)
    weights = {1: 0.0, -1: 0.0}
    for start, end in pairwise(sorted(changes)):
        weights = {side: weights[side] + changes[start][side] for side in weights}
        best, other = sorted(weights.values(), reverse=True)
        if best - other > 1e-9 and best / (best + other) >= rule.min_agreement:
            yield start, end, 1 if weights[1] > weights[-1] else -1


def lay_over(below: Sequence[Stretch], above: Sequence[Stretch]) -> Iterator[Stretch]:
    """``above`` and what of ``below`` it leaves free; neighbours of one side are joined. Both in order and without overlap."""
    edges = sorted({edge for start, end, _ in (*below, *above) for edge in (start, end)})
    joined: list[Stretch] = []
    lower, upper = SideReader(below), SideReader(above)
    for start, end in pairwise(edges):
        side = upper.at(start) or lower.at(start)
        if side and joined and joined[-1][1:] == (start, side):
            joined[-1] = (joined[-1][0], end, side)
        elif side:
            joined.append((start, end, side))
    yield from joined


class SideReader:
    """The side of a token, asked for in order."""

    def __init__(self, stretches: Sequence[Stretch]) -> None:
        self.stretches = list(stretches)[::-1]

    def at(self, token: int) -> int:
        while self.stretches and self.stretches[-1][1] <= token:
            self.stretches.pop()
        return self.stretches[-1][2] if self.stretches and self.stretches[-1][0] <= token else 0


def place_marks(
    marks: Mapping[int, MarkedAnswer], sides: Mapping[int, SourceRollout], edges: Edges, left_out: Counter[str]
) -> dict[int, MarkedAnswer]:
    """Rollout -> its marks with their spans over characters; those of rows' rollouts alone."""
    placed, wanted = dict[int, MarkedAnswer](), (rollout for rollout in marks if rollout in sides)
    while batch := list(islice(wanted, BATCH)):
        found = edges(batch)
        for rollout in batch:
            marked = marks[rollout]
            try:
                spans = build_character_spans(marked, found[rollout], answer_text(sides[rollout].messages))
            except (KeyError, SpanError):
                left_out[UNPLACED] += len(marked.stretches)
                continue
            if spans:
                placed[rollout] = replace(marked, spans=tuple(spans))
    return placed


def build_character_spans(marked: MarkedAnswer, edges: Sequence[int], text: str) -> list[Span]:
    """The stretches over characters of the answer, as trainers read them; those of tokens without text are left out. Raises SpanError."""
    spans = []
    for start, end, side in marked.stretches:
        if end >= len(edges):
            raise SpanError(f"token {end} is not in this answer, which has {len(edges) - 1}")
        if edges[start] < edges[end]:
            spans.append({"start": edges[start], "end": edges[end], "label": GOOD if side > 0 else BAD})
    return read_spans(spans, text, "spans")


def count_span_characters(rows: Iterable[dict[str, Any]], columns: Sequence[str]) -> dict[str, int]:
    """Rows with marked spans, and characters in good and in bad ones; empty where no row has any."""
    counts = {"rows": 0, GOOD: 0, BAD: 0}
    for row in rows:
        spans = [span for column in columns for span in row.get(column) or ()]
        counts["rows"] += bool(spans)
        for span in spans:
            counts[span["label"]] += span["end"] - span["start"]
    return counts if counts["rows"] else {}
