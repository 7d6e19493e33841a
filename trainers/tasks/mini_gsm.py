"""Word problems about a running total, answered with one visible equation per change.

``Max has 3 apples, gets 3, buys 5, drops 1. How many?`` wants ``<think>3+3=6 6+5=11 11-1=10</think><answer>10</answer>``.
"""

import random
import re
from dataclasses import dataclass

from trainers.contract.events import Message
from trainers.tasks import answers
from trainers.tasks.base import Example, Reward, Task

NAMES = ("Mia", "Leo", "Zoe", "Max", "Ana", "Tom", "Eva", "Sam")
ITEMS = ("apples", "coins", "books", "cards", "pens", "shells", "eggs", "stamps")
GAINS = ("buys", "finds", "gets", "wins")
LOSSES = ("gives away", "loses", "sells", "drops")

EQUATION = re.compile(r"([0-9]{1,6})([+-])([0-9]{1,6})=([0-9]{1,6})")
LARGEST_ERROR = 5  # of a guessed answer in a demonstration


@dataclass(frozen=True)
class Sizes:
    steps: tuple[int, int]
    start: tuple[int, int]
    change: tuple[int, int]


SIZES = {
    "easy": Sizes(steps=(2, 3), start=(3, 15), change=(1, 5)),
    "medium": Sizes(steps=(3, 4), start=(5, 30), change=(1, 9)),
    "hard": Sizes(steps=(4, 6), start=(10, 60), change=(1, 19)),
}


def list_equations(example: Example) -> list[str]:
    total, lines = example.data["start"], []
    for change in example.data["changes"]:
        lines.append(f"{total}{change:+d}={total + change}")
        total += change
    return lines


def write_gold_answer(example: Example) -> str:
    return answers.write_answer(list_equations(example), example.reference)


def score_brevity(text: str, example: Example) -> float | None:
    if "changes" not in example.data:
        return None
    return answers.score_relative_brevity(text, write_gold_answer(example), answers.score_correctness, example)


def score_working(text: str, example: Example) -> float | None:
    """Share of the problem's changes that have a right equation which starts from the total before it; extra lines count as wrong."""
    if "changes" not in example.data:
        return None
    parts = answers.worked_answer(text)
    if parts is None:
        return 0.0
    changes, lines = example.data["changes"], parts[0].split()
    total, right = example.data["start"], 0
    for line, change in zip(lines, changes, strict=False):
        match = EQUATION.fullmatch(line)
        if match is None:
            continue
        before, after = int(match[1]), int(match[4])
        right += before == total and int(match[2] + match[3]) == change and after == before + change
        total = after
    return right / max(len(changes), len(lines))


class MiniGsm(Task):
    name = "mini_gsm"
    title = "Word problems"
    summary = "Keep a running total through a short story and show one equation for each change."
    difficulties = {
        "easy": "2 or 3 changes of 1 to 5, starting from 3 to 15.",
        "medium": "3 or 4 changes of 1 to 9, starting from 5 to 30.",
        "hard": "4 to 6 changes of 1 to 19, starting from 10 to 60; allow completions of 70 tokens.",
    }
    rewards = {
        "correct": Reward(answers.score_correctness, "1 when the form is right and the answer is exactly the total.", 1.0),
        "format": Reward(answers.well_formed, "1 for exactly one <think> part followed by one <answer> part.", 0.0),
        "brevity": Reward(score_brevity, "Correct answers only: 1 up to the gold length, 0 from twice that on.", 0.0),
        "working": Reward(score_working, "Share of the changes with a right equation that goes on from the total before.", 0.0),
    }
    demonstrations = (
        "Of mixed quality by design, so that reinforcement has strategies to choose between: 40 % work carefully and are right,"
        " 25 % stop one step early and are wrong, 35 % show no working and guess within 5 of the answer."
    )

    def example(self, rng: random.Random, difficulty: str) -> Example:
        sizes = SIZES[difficulty]
        steps, start = rng.randint(*sizes.steps), rng.randint(*sizes.start)
        story, changes, total = [f"{rng.choice(NAMES)} has {start} {rng.choice(ITEMS)}"], list[int](), start
        for _ in range(steps):
            size = rng.randint(*sizes.change)
            loses = rng.random() < 0.5 and total - size >= 1
            story.append(f"{rng.choice(LOSSES if loses else GAINS)} {size}")
            changes.append(-size if loses else size)
            total += changes[-1]
        return Example([Message("user", ", ".join(story) + ". How many?")], str(total), {"start": start, "changes": changes})

    def gold(self, example: Example) -> str:
        return write_gold_answer(example)

    def demonstration(self, example: Example, rng: random.Random) -> str:
        kind = rng.random()
        if kind < 0.35:
            guess = int(example.reference) + rng.randint(-LARGEST_ERROR, LARGEST_ERROR)
            return answers.write_answer([], str(max(0, guess)))
        if kind < 0.60:
            early = list_equations(example)[:-1]
            return answers.write_answer(early, early[-1].partition("=")[2])
        return write_gold_answer(example)
