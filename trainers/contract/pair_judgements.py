"""Two answers to one question, judged in both orders: how a judge is asked, and what its verdicts say. Imports no torch.

A verdict counts only if it is right in both orders: consistent accuracy, after "On the shelf life of fine-tuned LLM judges" (arXiv 2509.23542).
A judge that always names the same place is right half of the time and consistent never.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

FIRST, SECOND = "A", "B"  # the places of the two answers
PLACES = (FIRST, SECOND)
ANSWER = re.compile(r"<answer>\s*([AB])\s*</answer>")


def write_judge_question(question: str, first: str, second: str) -> str:
    """What a judge is asked."""
    return f"{question}\nA: {first}\nB: {second}\nA or B?"


def write_verdict(place: str, reason: str = "") -> str:
    """A judge's answer; ``reason``: what it says before its verdict."""
    return f"<think>{reason}</think><answer>{place}</answer>" if reason else f"<answer>{place}</answer>"


def read_verdict(text: str) -> str | None:
    """The place that an answer names at its end; None for any other text."""
    found = list(ANSWER.finditer(text))
    return found[-1][1] if found and not text[found[-1].end() :].strip() else None


def swap_place(place: str) -> str:
    return SECOND if place == FIRST else FIRST


@dataclass(frozen=True)
class PairVerdict:
    """Of one pair: the place that was named when the better answer stood first, and when it stood second; None where there was no verdict."""

    better_first: str | None
    better_second: str | None

    @property
    def right(self) -> tuple[bool, bool]:
        return self.better_first == FIRST, self.better_second == SECOND

    @property
    def is_consistent(self) -> bool:
        """Right in both orders."""
        return all(self.right)

    @property
    def is_biased(self) -> bool:
        """The same place in both orders, whatever stood there."""
        return self.better_first is not None and self.better_first == self.better_second


@dataclass(frozen=True)
class JudgeFigures:
    """Shares between 0 and 1. ``consistent``: pairs right in both orders; ``accuracy``: single verdicts that are right; ``biased``: pairs with the
    same place named twice; ``says_first``: verdicts that name the first place, of those that name one (0.5 where none does); ``undecided``: verdicts
    that name none.
    """

    pairs: int
    consistent: float
    accuracy: float
    biased: float
    says_first: float
    undecided: float


def measure_judge(verdicts: Sequence[PairVerdict]) -> JudgeFigures | None:
    """None without a pair."""
    if not verdicts:
        return None
    named = [place for verdict in verdicts for place in (verdict.better_first, verdict.better_second)]
    given = [place for place in named if place is not None]
    return JudgeFigures(
        pairs=len(verdicts),
        consistent=compute_share(verdict.is_consistent for verdict in verdicts),
        accuracy=compute_share(right for verdict in verdicts for right in verdict.right),
        biased=compute_share(verdict.is_biased for verdict in verdicts),
        says_first=compute_share(place == FIRST for place in given) if given else 0.5,
        undecided=1 - len(given) / len(named),
    )


def compute_share(values: Iterable[bool]) -> float:
    """Of those that are true; 0 of none."""
    found = list(values)
    return sum(found) / len(found) if found else 0.0
