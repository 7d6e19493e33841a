"""Word problems about a running total as programs: their parameters read from a question, written as one again, and worked out.

``Max has 3 apples, gets 3, drops 1. How many?`` is a start of 3 and the changes +3 and -1; its working is ``3+3=6 6-1=5``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

GAINS = ("buys", "finds", "gets", "wins")
LOSSES = ("gives away", "loses", "sells", "drops")
BEGINNING = re.compile(r"(\w+) has (\d{1,6}) (\w+)", re.ASCII)
CHANGE = re.compile(rf"({'|'.join((*GAINS, *LOSSES))}) (\d{{1,6}})", re.ASCII)
EQUATION = re.compile(r"(-?\d{1,7})([+-])(\d{1,6})=(-?\d{1,7})", re.ASCII)
QUESTION = ". How many?"
LONGEST = 400  # characters of a question that is read


@dataclass(frozen=True)
class Line:
    """``before`` + ``change`` = ``after``, as it is written: it may be wrong."""

    before: int
    change: int
    after: int

    def __str__(self) -> str:
        return f"{self.before}{self.change:+d}={self.after}"


@dataclass(frozen=True)
class WordProblem:
    """``changes``: signed; ``verbs``: one for each."""

    name: str
    start: int
    item: str
    changes: tuple[int, ...]
    verbs: tuple[str, ...]

    def __str__(self) -> str:
        told = [f"{verb} {abs(change)}" for verb, change in zip(self.verbs, self.changes, strict=True)]
        return ", ".join([f"{self.name} has {self.start} {self.item}", *told]) + QUESTION

    @property
    def lines(self) -> list[Line]:
        """The right working."""
        return work_on(self.start, self.changes)

    @property
    def result(self) -> int:
        return self.start + sum(self.changes)

    @property
    def is_solvable(self) -> bool:
        """Whether no total on the way is below 0, and something changes in every step."""
        return bool(self.changes) and all(self.changes) and all(line.after >= 0 for line in self.lines)


def work_on(start: int, changes: tuple[int, ...]) -> list[Line]:
    """The working of some changes from a total, right or wrong as that is."""
    lines, total = list[Line](), start
    for change in changes:
        lines.append(Line(total, change, total + change))
        total += change
    return lines


def read_word_problem(text: str) -> WordProblem | None:
    """None for a text that is no such problem."""
    if len(text) > LONGEST or not text.endswith(QUESTION):
        return None
    beginning, *rest = text.removesuffix(QUESTION).split(", ")
    begins, told = BEGINNING.fullmatch(beginning), [CHANGE.fullmatch(part) for part in rest]
    if begins is None or not told or not all(told):
        return None
    verbs = tuple(match[1] for match in told if match)
    changes = tuple(-int(match[2]) if match[1] in LOSSES else int(match[2]) for match in told if match)
    return WordProblem(begins[1], int(begins[2]), begins[3], changes, verbs)


def read_lines(text: str) -> list[Line]:
    """The equations among the words of a working, right or wrong."""
    found = [EQUATION.fullmatch(word) for word in text.split()]
    return [Line(int(match[1]), int(match[2] + match[3]), int(match[4])) for match in found if match]


def set_change(problem: WordProblem, place: int, size: int) -> WordProblem:
    """The same problem with another number in one step, in the same direction."""
    change = size if problem.changes[place] > 0 else -size
    return replace(problem, changes=(*problem.changes[:place], change, *problem.changes[place + 1 :]))


def add_change(problem: WordProblem, verb: str, size: int) -> WordProblem:
    """A problem with one step more."""
    change = -size if verb in LOSSES else size
    return replace(problem, changes=(*problem.changes, change), verbs=(*problem.verbs, verb))
