"""Stretches of a rollout's tokens that people speak about: the reasoning steps of a completion, and the text a range of tokens covered.

Works on units, as ``lab.rollouts.trajectories.tokens.build_token_units`` gives them: [text, first token, token count, flags] in order.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from lab.lib.refusals import Refusal

BLANK_LINES = re.compile(r"\n[ \t\r]*\n\s*")
LINES = re.compile(r"\n\s*")
THOUGHT = re.compile(r"</think>\s*")
SENTENCES = re.compile(r"[.!?…。！？][\"'”’)\]]*\s+")
SPECIAL, ENVIRONMENT = 1, 2  # flags of a unit
SNAPSHOT_AT = 4000  # characters of a snapshot that are kept

Unit = Sequence[Any]


@dataclass(frozen=True)
class TokenStretch:
    """Tokens [start, end) and their text."""

    start: int
    end: int
    text: str


def cut_into_steps(units: Sequence[Unit]) -> list[TokenStretch]:
    """The policy's text cut at blank lines; without one at newlines; without one after sentences; and always where thinking ends. Together the
    steps are all its tokens.

    What the environment wrote, or a method gave as context, is no step and ends one. A token with the end of one step and the start of the
    next belongs to the earlier. White space and the tags around thinking are no steps: they belong to the one before.
    """
    parts = list(collect_policy_segments(units))
    texts = ["".join(unit[0] for unit in part if not unit[3] & SPECIAL) for part in parts]
    cut = next((pattern for pattern in (BLANK_LINES, LINES) if any(pattern.search(text.strip()) for text in texts)), SENTENCES)
    return [step for part, text in zip(parts, texts, strict=True) for step in cut_segment(part, text, cut)]


def collect_policy_segments(units: Sequence[Unit]) -> Iterator[list[Unit]]:
    """Runs of units by the policy. Text that no token accounts for has no place among tokens and is left out."""
    current: list[Unit] = []
    for unit in units:
        if unit[3] & ENVIRONMENT:
            if current:
                yield current
            current = []
        elif unit[2]:
            current.append(unit)
    if current:
        yield current


def cut_segment(part: list[Unit], text: str, cut: re.Pattern[str]) -> Iterator[TokenStretch]:
    """The steps of one segment; ``text`` is that of its units without the special tokens."""
    offsets, at = [], 0  # where in the text each unit begins
    for unit in part:
        offsets.append(at)
        at += 0 if unit[3] & SPECIAL else len(unit[0])
    firsts = {0}
    for match in (*cut.finditer(text), *THOUGHT.finditer(text)):
        index = bisect_right(offsets, match.end()) - 1
        whole = offsets[index] == match.end() or not text[offsets[index] : match.end()].strip()
        while whole and index > 0 and offsets[index - 1] == match.end():
            index -= 1  # a special token right before the step begins it
        firsts.add(index if whole else index + 1)
    edges = sorted(index for index in firsts if index < len(part))
    kept: list[int] = []
    for index, following in zip(edges, [*edges[1:], len(part)], strict=True):
        if is_blank_or_markup(text[offsets[index] : offsets[following] if following < len(part) else len(text)]) and index:
            continue  # goes with the step before it
        kept.append(index)
    if len(kept) > 1 and is_blank_or_markup(text[: offsets[kept[1]]]):
        del kept[1]  # what begins the segment goes with the first step
    for index, following in zip(kept, [*kept[1:], len(part)], strict=True):
        words = text[offsets[index] : offsets[following] if following < len(part) else len(text)].strip()
        if words:
            yield TokenStretch(part[index][1], part[following - 1][1] + part[following - 1][2], words)


def is_blank_or_markup(text: str) -> bool:
    """Nothing but white space and the tags around thinking: no step of its own."""
    return not text.replace("<think>", "").replace("</think>", "").strip()


def find_stretch(units: Sequence[Unit], start: int, end: int) -> TokenStretch:
    """Tokens [start, end) widened to whole units, with the text that stands there now. Raises Refusal."""
    total = sum(unit[2] for unit in units)
    if not 0 <= start < end <= total:
        raise Refusal(f"Tokens {start} to {end} are not in this rollout, which has {total}. Select the text again.", status=400, field="start")
    covered = [unit for unit in units if unit[2] and unit[1] < end and unit[1] + unit[2] > start]
    text = "".join(unit[0] for unit in covered if not unit[3] & SPECIAL) or "".join(unit[0] for unit in covered)
    if len(text) > SNAPSHOT_AT:
        text = f"{text[:SNAPSHOT_AT]}…"
    return TokenStretch(covered[0][1], covered[-1][1] + covered[-1][2], text)
