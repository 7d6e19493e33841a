"""The steps of an answer, and the answer with its steps in another order. Linear in the text: it is whatever a policy or a person wrote.

Steps are lines where there are several, else equations (words such as ``3+3=6``) where at least half of the words are some, else sentences. Where an
answer shows its working between ``<think>`` and ``</think>``, only that is read: the final answer stays where it is.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Literal

Span = tuple[int, int]  # characters [start, end)
StepKind = Literal["auto", "lines", "equations", "sentences"]

THINK, END_THINK = "<think>", "</think>"
LINE = re.compile(r"[^\n]+")
WORD = re.compile(r"\S+")
SENTENCE_END = re.compile(r"[.!?]+(?=\s)")  # not the point of 3.5


def find_working(text: str) -> Span:
    """The characters between the first ``<think>`` and the next ``</think>``; the whole text where it has no such part."""
    start = text.find(THINK)
    end = text.find(END_THINK, start + len(THINK)) if start >= 0 else -1
    return (start + len(THINK), end) if end >= 0 else (0, len(text))


def find_steps(text: str, kind: StepKind = "auto") -> list[Span]:
    """The steps of an answer's working, in order, without the space around them."""
    start, end = find_working(text)
    if kind in ("auto", "lines"):
        lines = trim_spans(text, [match.span() for match in LINE.finditer(text, start, end)])
        if kind == "lines" or len(lines) > 1:
            return lines
    if kind in ("auto", "equations"):
        words = [match.span() for match in WORD.finditer(text, start, end)]
        equations = [(first, last) for first, last in words if "=" in text[first + 1 : last - 1]]
        if kind == "equations" or (len(equations) > 1 and 2 * len(equations) >= len(words)):
            return equations
    cuts = [start, *(match.end() for match in SENTENCE_END.finditer(text, start, end)), end]
    return trim_spans(text, list(pairwise(cuts)))


def trim_spans(text: str, spans: Sequence[Span]) -> list[Span]:
    """The spans without the space at their ends; those of space alone are left out."""
    trimmed = list[Span]()
    for start, end in spans:
        inside = text[start:end]
        first, length = start + len(inside) - len(inside.lstrip()), len(inside.strip())
        if length:
            trimmed.append((first, first + length))
    return trimmed


def reorder_steps(text: str, steps: Sequence[Span], order: Sequence[int]) -> str:
    """The text with the step ``order[i]`` in the place of step i; what stands between the places stays. ``order`` is a permutation."""
    parts, before = list[str](), 0
    for (start, end), source in zip(steps, order, strict=True):
        parts += [text[before:start], text[slice(*steps[source])]]
        before = end
    return "".join([*parts, text[before:]])
