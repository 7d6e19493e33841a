"""A language of twenty operations on a list of whole numbers, as code, as words and as Python. Interpreted by hand with a budget: nothing to escape.

``reverse add 3`` turns ``[1, 2]`` into ``[5, 4]``; in words ``turn round, then 3 more each``.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

MOST_OPERATIONS, MOST_CHARACTERS, MOST_VALUE = 6, 100, 9_999
BUDGET = 200  # steps: one for an operation, and one for every number it reads
THEN = ", then "

Values = list[int]
Case = list[Values]  # input and output


class ProgramError(ValueError):
    """A program that is none, or that takes too many steps or grows too large."""


@dataclass(frozen=True)
class Operation:
    """``run``: of a list and the number behind the name, which only some take. ``words`` and ``python``: ``{}`` is where that number stands."""

    run: Callable[[Values, int], Values]
    words: str
    python: str

    @property
    def takes_number(self) -> bool:
        return "{}" in self.words


OPERATIONS = {
    "reverse": Operation(lambda x, _: x[::-1], "turn round", "x[::-1]"),
    "sort": Operation(lambda x, _: sorted(x), "put in order", "sorted(x)"),
    "head": Operation(lambda x, _: x[:1], "keep the front one", "x[:1]"),
    "last": Operation(lambda x, _: x[-1:], "keep the end one", "x[-1:]"),
    "tail": Operation(lambda x, _: x[1:], "leave out the front one", "x[1:]"),
    "init": Operation(lambda x, _: x[:-1], "leave out the end one", "x[:-1]"),
    "sum": Operation(lambda x, _: [sum(x)], "the total", "[sum(x)]"),
    "max": Operation(lambda x, _: [max(x)] if x else [], "the largest", "[max(x)] if x else []"),
    "min": Operation(lambda x, _: [min(x)] if x else [], "the smallest", "[min(x)] if x else []"),
    "length": Operation(lambda x, _: [len(x)], "how many", "[len(x)]"),
    "double": Operation(lambda x, _: [2 * one for one in x], "twice each", "[2 * one for one in x]"),
    "square": Operation(lambda x, _: [one * one for one in x], "each times itself", "[one * one for one in x]"),
    "even": Operation(lambda x, _: [one for one in x if one % 2 == 0], "only what 2 divides", "[one for one in x if one % 2 == 0]"),
    "odd": Operation(lambda x, _: [one for one in x if one % 2], "only what 2 does not divide", "[one for one in x if one % 2]"),
    "unique": Operation(lambda x, _: list(dict.fromkeys(x)), "no repeats", "list(dict.fromkeys(x))"),
    "add": Operation(lambda x, k: [one + k for one in x], "{} more each", "[one + {} for one in x]"),
    "sub": Operation(lambda x, k: [one - k for one in x], "{} less each", "[one - {} for one in x]"),
    "take": Operation(lambda x, k: x[:k], "keep the front {}", "x[:{}]"),
    "drop": Operation(lambda x, k: x[k:], "leave out the front {}", "x[{}:]"),
    "above": Operation(lambda x, k: [one for one in x if one > k], "only what exceeds {}", "[one for one in x if one > {}]"),
}
Program = tuple[tuple[str, int], ...]  # name and number of each operation; 0 for those that take none


def parse_program(text: str) -> Program:
    """Raises ProgramError."""
    words = text.split() if len(text) <= MOST_CHARACTERS else []
    program = list[tuple[str, int]]()
    while words:
        name = words.pop(0)
        if name not in OPERATIONS or len(program) == MOST_OPERATIONS:
            raise ProgramError("no such operation" if name not in OPERATIONS else "too many operations")
        number = words.pop(0) if OPERATIONS[name].takes_number and words else ""
        if OPERATIONS[name].takes_number and not is_digit(number):
            raise ProgramError(f"{name} needs a digit")
        program.append((name, int(number or 0)))
    if not program:
        raise ProgramError("no program")
    return tuple(program)


def is_digit(text: str) -> bool:
    return len(text) == 1 and text in "0123456789"


def run_program(program: Program, values: Sequence[int], budget: int = BUDGET) -> Values:
    """Raises ProgramError beyond the budget, and for numbers of more than four digits."""
    found = list(values)
    for name, number in program:
        budget -= 1 + len(found)
        if budget < 0:
            raise ProgramError("too many steps")
        found = OPERATIONS[name].run(found, number)
        if any(abs(one) > MOST_VALUE for one in found):
            raise ProgramError("too large a number")
    return found


@lru_cache(maxsize=4096)
def run_cases(text: str, inputs: tuple[tuple[int, ...], ...]) -> tuple[Values | str, ...]:
    """What a program makes of each input; the words of its error where it makes nothing."""
    try:
        program = parse_program(text)
    except ProgramError as error:
        return (str(error),) * len(inputs)
    found = list[Values | str]()
    for values in inputs:
        try:
            found.append(run_program(program, values))
        except ProgramError as error:
            found.append(str(error))
    return tuple(found)


def write_program(program: Program) -> str:
    return " ".join(f"{name} {number}" if OPERATIONS[name].takes_number else name for name, number in program)


def write_document(program: Program) -> str:
    return THEN.join(OPERATIONS[name].words.format(number) for name, number in program)


def write_python(program: Program) -> str:
    lines = [f"    x = {OPERATIONS[name].python.format(number)}\n" for name, number in program]
    return f"def f(x):\n{''.join(lines)}    return x\n"


def read_document(text: str) -> Program:
    """The program that the words tell. Raises ProgramError for other words, names of operations among them."""
    if len(text) > 4 * MOST_CHARACTERS:
        raise ProgramError("too many words")
    return tuple(read_words(part) for part in text.split(THEN))


def read_words(part: str) -> tuple[str, int]:
    for name, operation in OPERATIONS.items():
        before, braces, after = operation.words.partition("{}")
        if not braces and part == operation.words:
            return name, 0
        number = part[len(before) : len(part) - len(after)]
        if braces and is_digit(number) and part == before + number + after:
            return name, int(number)
    raise ProgramError("words that tell no operation")


def draw_program(rng: random.Random, names: Sequence[str], count: int) -> Program:
    chosen = rng.sample(names, count)
    return tuple((name, rng.randint(1, 3) if OPERATIONS[name].takes_number else 0) for name in chosen)


def draw_cases(rng: random.Random, program: Program, count: int) -> list[Case]:
    """Inputs of three or four digits, different ones unless it matters, that the program changes, and what it makes of them.

    Raises ProgramError where there are hardly any.
    """
    cases, text = list[Case](), write_program(program)
    for _ in range(20 * count):
        length = rng.randint(3, 4)
        values = [rng.randint(0, 9) for _ in range(length)] if "unique" in text else rng.sample(range(10), length)
        [made] = run_cases(text, (tuple(values),))
        if isinstance(made, list) and made not in ([], values) and values not in [case[0] for case in cases]:
            cases.append([values, made])
        if len(cases) == count:
            return cases
    raise ProgramError("it changes too few lists")


def write_values(values: Sequence[int]) -> str:
    return " ".join(map(str, values)) or "nothing"
