"""Weekday arithmetic in words, answered with one visible step per event.

``Today is Tuesday. The fair is in 4 days, the match 2 days before the fair. On which day is the match?`` wants
``<think>Tue+4=Sat Sat-2=Thu</think><answer>Thursday</answer>``.
"""

import random
import re
from dataclasses import dataclass

from trainers.contract.events import Message
from trainers.tasks import answers
from trainers.tasks.base import Example, Reward, Task

DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
SHORT = tuple(day[:3] for day in DAYS)
EVENTS = (
    "fair",
    "match",
    "exam",
    "concert",
    "party",
    "trip",
    "race",
    "play",
    "picnic",
    "wedding",
    "lesson",
    "market",
    "parade",
    "dinner",
    "sale",
    "vote",
)

STEP = re.compile(r"([A-Z][a-z]{2})([+-])([0-9]{1,3})=([A-Z][a-z]{2})")


@dataclass(frozen=True)
class CalendarSizes:
    """``asides``: events mentioned after the ones that lead to the asked event, each tied to an earlier one."""

    steps: tuple[int, int]
    days: int
    asides: int


SIZES = {
    "easy": CalendarSizes(steps=(2, 3), days=3, asides=0),
    "medium": CalendarSizes(steps=(3, 4), days=6, asides=0),
    "hard": CalendarSizes(steps=(3, 4), days=12, asides=2),
}


def format_day_count(days: int) -> str:
    return f"{days} day" if days == 1 else f"{days} days"


def day_after(day: int, change: int) -> int:
    return (day + change) % len(DAYS)


def list_day_steps(example: Example) -> list[str]:
    day, lines = example.data["today"], []
    for change in example.data["changes"]:
        then = day_after(day, change)
        lines.append(f"{SHORT[day]}{change:+d}={SHORT[then]}")
        day = then
    return lines


def write_gold_answer(example: Example) -> str:
    return answers.write_answer(list_day_steps(example), example.reference)


def score_brevity(text: str, example: Example) -> float | None:
    if "changes" not in example.data:
        return None
    return answers.score_relative_brevity(text, write_gold_answer(example), answers.score_correctness, example)


def score_working(text: str, example: Example) -> float | None:
    """Share of the events on the way with a right step that starts from the day before it; extra steps count as wrong."""
    if "changes" not in example.data:
        return None
    parts = answers.worked_answer(text)
    if parts is None:
        return 0.0
    changes, lines = example.data["changes"], parts[0].split()
    day, right = SHORT[example.data["today"]], 0
    for line, change in zip(lines, changes, strict=False):
        match = STEP.fullmatch(line)
        if match is None or match[1] not in SHORT:
            continue
        then = SHORT[day_after(SHORT.index(match[1]), change)]
        right += match[1] == day and int(match[2] + match[3]) == change and match[4] == then
        day = match[4]
    return right / max(len(changes), len(lines))


class CalendarDays(Task):
    name = "calendar"
    title = "Weekdays"
    summary = "Find the weekday of an event from a chain of days before and after, showing one step for each event."
    difficulties = {
        "easy": "2 or 3 events in a chain, 1 to 3 days apart.",
        "medium": "3 or 4 events in a chain, 1 to 6 days apart.",
        "hard": "3 or 4 events in a chain, 1 to 12 days apart, and 2 more that do not matter.",
    }
    rewards = {
        "correct": Reward(answers.score_correctness, "1 when the form is right and the answer is exactly the weekday.", 1.0),
        "format": Reward(answers.well_formed, "1 for exactly one <think> part followed by one <answer> part.", 0.0),
        "brevity": Reward(score_brevity, "Correct answers only: 1 up to the gold length, 0 from twice that on.", 0.0),
        "working": Reward(score_working, "Share of the events with a right step that goes on from the day before it.", 0.0),
    }
    demonstrations = (
        "Of mixed quality by design, so that reinforcement has strategies to choose between: 40 % work carefully and are right,"
        " 25 % stop one event early and are mostly wrong, 35 % show no working and name any weekday."
    )

    def example(self, rng: random.Random, difficulty: str) -> Example:
        sizes = SIZES[difficulty]
        count = rng.randint(*sizes.steps)
        events = rng.sample(EVENTS, count + sizes.asides)
        today = rng.randrange(len(DAYS))
        changes = [rng.randint(1, sizes.days)]
        story = [f"The {events[0]} is in {format_day_count(changes[0])}"]
        for number, event in enumerate(events[1:], 1):
            change = rng.randint(1, sizes.days) * rng.choice((1, -1))
            anchor = events[number - 1] if number < count else rng.choice(events[:number])
            story.append(f"the {event} {format_day_count(abs(change))} {'after' if change > 0 else 'before'} the {anchor}")
            if number < count:
                changes.append(change)
        question = f"Today is {DAYS[today]}. {', '.join(story)}. On which day is the {events[count - 1]}?"
        answer = DAYS[day_after(today, sum(changes))]
        return Example([Message("user", question)], answer, {"today": today, "changes": changes})

    def gold(self, example: Example) -> str:
        return write_gold_answer(example)

    def demonstration(self, example: Example, rng: random.Random) -> str:
        kind = rng.random()
        if kind < 0.35:
            return answers.write_answer([], rng.choice(DAYS))
        if kind < 0.60:
            early = example.data["changes"][:-1]
            return answers.write_answer(list_day_steps(example)[:-1], DAYS[day_after(example.data["today"], sum(early))])
        return write_gold_answer(example)
