"""Marks of reasoning steps and of stretches of tokens: what the labellers of one answer say together. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from lab.data.datasets.rules import DatasetRule
from lab.data.datasets.votes import ItemVote, JudgedItem, TokenMark, marks_of

UNMARKED = "steps from the first unmarked one"
TIED = "steps from the first with split votes"
NEUTRAL = "steps from the first neutral one"
FEW = "steps from the first with too few marks"
LITTLE = "steps from the first with too little agreement"
SIDES = {"good": 1, "bad": -1}
Weight = Callable[[ItemVote], float]


@dataclass(frozen=True)
class StepLabel:
    """Tokens [start, end) and what was said of them. ``why``: the reason a row ends before this step, or ""; then ``good`` says nothing."""

    start: int
    end: int
    good: bool
    why: str = ""
    agreement: float = 1.0  # weight for ``good`` over all that counts
    marks: tuple[tuple[int, str], ...] = ()  # labeller, mark
    adjudicated: bool = False

    @property
    def told(self) -> dict[str, Any]:
        """For the row's provenance."""
        data = {"start": self.start, "end": self.end, "agreement": self.agreement, "marks": {str(user): mark for user, mark in self.marks}}
        return {**data, "adjudicated": True} if self.adjudicated else data


def steps_said(judged: JudgedItem, rule: DatasetRule, weight: Weight) -> tuple[StepLabel, ...]:
    """Every step that somebody marked, in the order of the answer. Marks of an adjudicated answer decide where it has any."""
    votes_by_step: defaultdict[tuple[int, int], list[tuple[ItemVote, str]]] = defaultdict(list)
    for vote in judged.votes:
        for mark in vote.steps:
            votes_by_step[mark.start, mark.end].append((vote, mark.mark))
    if decided := marks_of((judged.final or {}).get("steps")):
        return tuple(make_adjudicated_step(mark, votes_by_step.get((mark.start, mark.end), ()), rule) for mark in decided)
    if rule.aggregation == "adjudicated":
        return ()
    return tuple(count_step_votes(step, votes, rule, weight) for step, votes in sorted(votes_by_step.items()))


def side_of(mark: str, rule: DatasetRule) -> int:
    """1 good, -1 bad, 0 neither."""
    return SIDES.get(mark) or SIDES.get(rule.neutral, 0)


def make_adjudicated_step(mark: TokenMark, votes: Sequence[tuple[ItemVote, str]], rule: DatasetRule) -> StepLabel:
    side = side_of(mark.mark, rule)
    marks = tuple((vote.user, own) for vote, own in votes)
    return StepLabel(mark.start, mark.end, side > 0, "" if side else NEUTRAL, marks=marks, adjudicated=True)


def count_step_votes(bounds: tuple[int, int], votes: Sequence[tuple[ItemVote, str]], rule: DatasetRule, weight: Weight) -> StepLabel:
    """The side with the most weight; nothing is decided when two share it."""
    weights = {1: 0.0, -1: 0.0, 0: 0.0}
    for vote, mark in votes:
        weights[side_of(mark, rule)] += weight(vote)
    best, second = sorted(weights, key=lambda side: -weights[side])[:2]
    total = weights[1] + weights[-1] + (weights[0] if rule.ties_against else 0.0)
    agreement = round(weights[best] / total, 6) if total and best else 1.0
    why = ""
    if len(votes) < rule.min_labels:
        why = FEW
    elif weights[best] - weights[second] < 1e-9:
        why = TIED
    elif not best:
        why = NEUTRAL
    elif agreement < rule.min_agreement:
        why = LITTLE
    return StepLabel(*bounds, best > 0, why, agreement, tuple((vote.user, mark) for vote, mark in votes))


def spans_said(judged: JudgedItem) -> tuple[dict[str, Any], ...]:
    """Marked stretches with who marked each, in the order of the answer. None is voted away: people rarely mark the same tokens."""
    spans: dict[TokenMark, dict[str, Any]] = {}
    own = [(span, vote.user) for vote in judged.votes for span in vote.spans]
    for span, user in own:
        spans.setdefault(span, told_span(span))["labellers"].append(user)
    for span in marks_of((judged.final or {}).get("spans")):
        spans.setdefault(span, told_span(span))["adjudicated"] = True
    return tuple(spans[span] for span in sorted(spans, key=lambda span: (span.start, span.end, span.mark)))


def told_span(span: TokenMark) -> dict[str, Any]:
    return {"start": span.start, "end": span.end, "mark": span.mark, "text": span.text, "labellers": []}
