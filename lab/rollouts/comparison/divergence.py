"""Where two completions part: the first token that differs, what each wrote there and how sure it was."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

import numpy as np

from lab.rollouts.trajectories.models import Rollout, RolloutTokens
from lab.rollouts.trajectories.text_pieces import Piece, iterate_text_pieces
from lab.rollouts.trajectories.tokens import TokenArrays, arrays_of, build_token_units
from trainers.contract.arrays import PackError

CONTEXT = 80  # characters before the place that are shown with it


@dataclass(frozen=True)
class Alternative:
    """What one completion has at the place. ``text`` is "" where it had ended; ``token`` is None where its tokens are not stored.

    ``offset``: the place in characters of the completion. ``entropy`` in nats, ``logprob`` of the token, both None where not measured.
    """

    text: str
    offset: int
    token: int | None = None
    id: int | None = None
    entropy: float | None = None
    logprob: float | None = None
    ended: bool = False
    special: bool = False

    @property
    def pieces(self) -> list[Piece]:
        return list(iterate_text_pieces(self.text))

    @property
    def probability(self) -> float | None:
        return None if self.logprob is None else math.exp(min(0.0, self.logprob))


@dataclass(frozen=True)
class Divergence:
    """``by``: "token" where both token ids are known and tell; else "character", because ``why``."""

    by: str
    left: Alternative
    right: Alternative
    shared: str  # the end of what both wrote before
    why: str = ""

    @property
    def shared_pieces(self) -> list[Piece]:
        return list(iterate_text_pieces(self.shared))


@dataclass(frozen=True)
class CompletionSide:
    """One rollout with its tokens as units: ``place[t]`` is the unit of token t, ``starts`` the unit's first character."""

    rollout: Rollout
    arrays: TokenArrays | None
    units: list[list[Any]]
    starts: list[int]

    @property
    def text(self) -> str:
        return self.rollout.completion

    def at_token(self, token: int) -> Alternative:
        """The unit that has the token; the end of the completion where there is no such token."""
        for unit, start in zip(self.units, self.starts, strict=True):
            if unit[1] <= token < unit[1] + unit[2]:
                return self.alternative(unit, start)
        return Alternative("", len(self.text), len(self.arrays.ids) if self.arrays else None, ended=True)

    def at_character(self, offset: int) -> Alternative:
        """The unit that covers the character; without tokens the character's own word."""
        for unit, start in zip(self.units, self.starts, strict=True):
            if start <= offset < start + (0 if unit[3] & 1 else len(unit[0])):
                return self.alternative(unit, start)
        if offset >= len(self.text):
            return Alternative("", len(self.text), ended=True)
        word = "".join(takewhile(lambda character: not character.isspace(), self.text[offset : offset + CONTEXT])) or self.text[offset]
        return Alternative(word, offset)

    def alternative(self, unit: list[Any], start: int) -> Alternative:
        text, token, count, flags = unit
        known = self.arrays is not None and count and token < len(self.arrays.ids)
        if not known or self.arrays is None:
            return Alternative(text, start)
        entropy, logprob = (to_finite_or_none(values[token]) for values in (self.arrays.entropies, self.arrays.logprobs))
        return Alternative(text, start, token, int(self.arrays.ids[token]), entropy, logprob, special=bool(flags & 1))


def to_finite_or_none(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def build_completion_side(rollout: Rollout, tokens: RolloutTokens | None, special: dict[str, str]) -> CompletionSide:
    """Damaged or missing tokens leave the text alone."""
    try:
        arrays = arrays_of(tokens) if tokens is not None else None
    except PackError:
        arrays = None
    if arrays is None:
        return CompletionSide(rollout, None, [], [])
    units = build_token_units(rollout.completion, arrays, special, rollout.turns)
    lengths = [0 if unit[3] & 1 else len(unit[0]) for unit in units]  # a special token's name is no part of the completion
    starts = [0, *np.cumsum(lengths).tolist()][: len(units)]
    return CompletionSide(rollout, arrays, units, starts)


def find_divergence(left: CompletionSide, right: CompletionSide) -> Divergence | None:
    """None where both wrote the same to the end."""
    letters = count_common_prefix(left.text, right.text)
    if left.arrays is None or right.arrays is None or not len(left.arrays.ids) or not len(right.arrays.ids):
        why = "at least one of the rollouts has no token ids"
        return by_character(left, right, letters, why)
    ids, others = left.arrays.ids, right.arrays.ids
    shorter = min(len(ids), len(others))
    differing = np.flatnonzero(ids[:shorter] != others[:shorter])
    index = int(differing[0]) if len(differing) else shorter
    if index == len(ids) == len(others):
        return by_character(left, right, letters, "the token ids are equal but the texts differ")
    first, second = left.at_token(index), right.at_token(index)
    reach = max(first.offset + len("" if first.special else first.text), second.offset + len("" if second.special else second.text))
    if first.offset != second.offset or left.text[: first.offset] != right.text[: second.offset]:
        return by_character(left, right, letters, "equal token ids stand for different text: the tokenizers differ")
    if not (first.special or second.special or first.ended or second.ended) and letters >= reach:
        return by_character(left, right, letters, f"from token {index} on, the same text is tokenized differently")
    return Divergence("token", first, second, left.text[max(0, first.offset - CONTEXT) : first.offset])


def by_character(left: CompletionSide, right: CompletionSide, letters: int, why: str) -> Divergence | None:
    if letters == len(left.text) == len(right.text):
        return None
    first = left.at_character(letters)
    return Divergence("character", first, right.at_character(letters), left.text[max(0, first.offset - CONTEXT) : first.offset], why)


def count_common_prefix(left: str, right: str) -> int:
    """Characters both begin with, by halving: comparing slices is much faster than comparing letters."""
    low, high = 0, min(len(left), len(right))
    while low < high:
        middle = (low + high + 1) // 2
        if left[low:middle] == right[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
