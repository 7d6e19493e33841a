"""Chains of equations (``3+3=6 6+5=11``) in answers: reading them, judging them without the gold answer, and writing wrong ones on purpose."""

import random
import re
from dataclasses import dataclass
from typing import Literal

from trainers.tasks.answers import worked_answer, write_answer
from trainers.tasks.mini_gsm import EQUATION
from trainers.texts.segments import find_step_spans

Error = Literal["logic", "fact", "instruction"]
ERRORS: tuple[Error, ...] = ("logic", "fact", "instruction")
LARGEST_SLIP = 3
NUMBER = re.compile(r"(?<!\d)\d{1,6}(?!\d)")


@dataclass(frozen=True)
class Line:
    """``before`` + ``change`` = ``after``, as it is written: it may be wrong."""

    before: int
    change: int
    after: int

    def __str__(self) -> str:
        return f"{self.before}{self.change:+d}={self.after}"


def chain_of(text: str) -> tuple[list[Line], str] | None:
    """Every line of the working and the answer; None for an answer of another form or a working that is not equations alone."""
    parts = worked_answer(text)
    if parts is None:
        return None
    matches = [EQUATION.fullmatch(word) for word in parts[0].split()]
    lines = [Line(int(match[1]), int(match[2] + match[3]), int(match[4])) for match in matches if match]
    return (lines, parts[1]) if len(lines) == len(matches) else None


def score_coherence(text: str) -> float:
    """Share of the lines after the first that go on from the result before; 1 for a single line, 0 without a chain."""
    found = chain_of(text)
    if found is None or not found[0]:
        return 0.0
    pairs = list(zip(found[0], found[0][1:], strict=False))
    return sum(one.after == other.before for one, other in pairs) / len(pairs) if pairs else 1.0


def score_soundness(text: str) -> float:
    """Share of the lines whose arithmetic is right; 0 without a chain."""
    found = chain_of(text)
    if found is None or not found[0]:
        return 0.0
    return sum(line.before + line.change == line.after for line in found[0]) / len(found[0])


def recompute_chain(lines: list[Line], slips: dict[int, int]) -> list[Line]:
    """The chain worked out again from its start; the result of line i is off by ``slips[i]``."""
    made, total = list[Line](), lines[0].before
    for place, line in enumerate(lines):
        after = total + line.change + slips.get(place, 0)
        made.append(Line(total, line.change, after))
        total = after
    return made


def corrupt_answer(text: str, error: Error, rng: random.Random) -> str | None:
    """The answer with one error of a kind, carried on to the end; None where the text has no place for it.

    logic: one result is wrong. fact: one number is not the question's, the arithmetic is right. instruction: one step is left out.
    Texts that are not chains: two steps exchange places; a number changes; a step is left out.
    """
    found = chain_of(text)
    if found is None:
        return corrupt_text(text, error, rng)
    lines, answer = found
    slip = rng.choice([-1, 1]) * rng.randint(1, LARGEST_SLIP)
    if not lines:
        return guessed_otherwise(answer, slip) if error == "fact" else None
    place = rng.randrange(len(lines))
    for size in (slip, abs(slip)):  # a chain has no negative numbers: where a step down leads there, one up does not
        made = apply_chain_error(lines, error, place, size)
        if made and all(line.before >= 0 and line.after >= 0 for line in made):
            written = write_answer([str(line) for line in made], str(made[-1].after))
            return written if written != text.strip() else None  # it had this very error
    return None


def guessed_otherwise(answer: str, slip: int) -> str | None:
    if not answer.isdecimal() or len(answer) > 6:
        return None
    value = int(answer) + (slip if int(answer) + slip >= 0 else abs(slip))
    return write_answer([], str(value))


def apply_chain_error(lines: list[Line], error: Error, place: int, slip: int) -> list[Line] | None:
    if error == "logic":
        return recompute_chain(lines, {place: slip})
    if error == "instruction":
        rest = [*lines[:place], *lines[place + 1 :]]
        return recompute_chain([Line(lines[0].before, rest[0].change, 0), *rest[1:]], {}) if rest else None
    line = lines[place]
    change = line.change + slip or slip  # never 0: that would be a step left out
    return recompute_chain([*lines[:place], Line(line.before, change, 0), *lines[place + 1 :]], {})


def corrupt_text(text: str, error: Error, rng: random.Random) -> str | None:
    if error == "fact":
        numbers = list(NUMBER.finditer(text))
        if not numbers:
            return None
        chosen = rng.choice(numbers)
        return f"{text[: chosen.start()]}{int(chosen[0]) + rng.randint(1, LARGEST_SLIP)}{text[chosen.end() :]}"
    spans = find_step_spans(text)
    if len(spans) < 2:
        return None
    place = rng.randrange(len(spans) - 1)
    (start, end), (next_start, next_end) = spans[place], spans[place + 1]
    if error == "instruction":
        made = text[:start] + text[next_start:]
    else:
        made = text[:start] + text[next_start:next_end] + text[end:next_start] + text[start:end] + text[next_end:]
    return None if made == text else made
