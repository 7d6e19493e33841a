"""Countdown: numbers that make a target when two of them at a time are replaced by what an operation makes of them. As a search problem."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from trainers.contract.search_traces import Move

State = tuple[tuple[int, str], ...]  # (value, the expression that made it) of each number that is left
MOST_NUMBERS, MOST_VALUE = 4, 1_000_000  # a search of five takes a hundred times as long
NUMBER = r"\d{1,6}"
LIST = rf"\[?({NUMBER}(?:(?:, ?| and |, and | ){NUMBER})+)\]?"
PROMPTS = (  # TinyZero, then the three of Reasoning Gym
    re.compile(rf"numbers:? {LIST}, create an (?:equation|expression) that equals ({NUMBER})\b"),
    re.compile(rf"numbers:? {LIST}.{{0,40}}? equals ({NUMBER})\b", re.DOTALL),
)
TARGET_FIRST = (
    re.compile(rf"make ({NUMBER}) using (?:some or all of )?(?:the|these) numbers:? {LIST}"),
    re.compile(rf"Calculate ({NUMBER}) using the numbers:? {LIST}"),
)


@dataclass(frozen=True)
class CountdownPuzzle:
    """``numbers``: every one is used once, and no intermediate result is negative or a fraction."""

    numbers: tuple[int, ...]
    target: int

    @property
    def start(self) -> State:
        return tuple((number, str(number)) for number in self.numbers)

    def list_moves(self, state: State) -> list[Move]:
        moves = dict[str, Move]()  # equal numbers make equal moves
        for left, right in itertools.combinations(range(len(state)), 2):
            rest = tuple(one for place, one in enumerate(state) if place not in (left, right))
            for (one, one_text), sign, (other, other_text), result in list_results(state[left], state[right]):
                written = f"{one} {sign} {other} = {result}"
                expression = f"({one_text} {sign} {other_text})"
                moves.setdefault(written, Move(written, (*rest, (result, expression))))
        return list(moves.values())

    def is_goal(self, state: State) -> bool:
        return len(state) == 1 and state[0][0] == self.target

    def can_reach_goal(self, state: State) -> bool:
        return can_make_target(tuple(sorted(value for value, _ in state)), self.target)


def list_results(first: tuple[int, str], second: tuple[int, str]) -> list[tuple[tuple[int, str], str, tuple[int, str], int]]:
    """(one number, sign, the other, result) of every operation with a whole result that is not negative."""
    high, low = (first, second) if first[0] >= second[0] else (second, first)
    found = [(high, "+", low, high[0] + low[0]), (high, "-", low, high[0] - low[0]), (high, "*", low, high[0] * low[0])]
    if low[0] and high[0] % low[0] == 0:
        found.append((high, "/", low, high[0] // low[0]))
    return [one for one in found if one[3] <= MOST_VALUE]


@lru_cache(maxsize=200_000)
def can_make_target(values: tuple[int, ...], target: int) -> bool:
    """``values`` in ascending order."""
    if len(values) == 1:
        return values[0] == target
    for left, right in itertools.combinations(range(len(values)), 2):
        rest = [value for place, value in enumerate(values) if place not in (left, right)]
        for _, _, _, result in list_results((values[left], ""), (values[right], "")):
            if can_make_target(tuple(sorted([*rest, result])), target):
                return True
    return False


def read_puzzle(text: str) -> CountdownPuzzle | None:
    """The puzzle of a prompt as TinyZero and Reasoning Gym write it; None for any other text, and for one of too many numbers."""
    for pattern in PROMPTS:
        if found := pattern.search(text):
            return make_puzzle(found[1], found[2])
    for pattern in TARGET_FIRST:
        if found := pattern.search(text):
            return make_puzzle(found[2], found[1])
    return None


def make_puzzle(numbers: str, target: str) -> CountdownPuzzle | None:
    values = tuple(map(int, re.findall(NUMBER, numbers)))
    return CountdownPuzzle(values, int(target)) if 2 <= len(values) <= MOST_NUMBERS else None


def write_expression(state: Sequence[tuple[int, str]]) -> str:
    """Of the last number that is left, without the outer brackets."""
    text = state[-1][1]
    return text[1:-1] if text.startswith("(") else text
