"""The weekdays: the story against the real calendar, and scoring by hand-worked cases."""

import datetime
import re

import pytest

from trainers.contract.events import Message
from trainers.tasks.base import Example
from trainers.tasks.calendar_days import DAYS, CalendarDays

TASK = CalendarDays()
MATCH = Example(
    [Message("user", "Today is Tuesday. The fair is in 4 days, the match 2 days before the fair. On which day is the match?")],
    "Thursday",
    {"today": 1, "changes": [4, -2]},
)
GOLD = "<think>Tue+4=Sat Sat-2=Thu</think><answer>Thursday</answer>"


def test_the_gold_answer_shows_one_step_for_each_event():
    assert TASK.gold(MATCH) == GOLD


@pytest.mark.parametrize(
    ("text", "correct", "working"),
    [
        (GOLD, 1, 1),
        ("<think></think><answer>Thursday</answer>", 1, 0),
        ("<think>Tue+4=Sat</think><answer>Saturday</answer>", 0, 1 / 2),
        ("<think>Tue+4=Sun Sun-2=Fri</think><answer>Friday</answer>", 0, 1 / 2),
        ("<think>Tue+4=Sat Mon-2=Sat</think><answer>Saturday</answer>", 0, 1 / 2),
        ("<think>Xyz+4=Sat Sat-2=Thu</think><answer>Thursday</answer>", 1, 0),
        ("<think>Tue+4=Sat Sat-2=Thu Thu+0=Thu</think><answer>Thursday</answer>", 1, 2 / 3),
        ("<think>Tue+4=Sat Sat-2=Thu</think><answer>Thu</answer>", 0, 1),
    ],
)
def test_it_scores_as_worked_out_by_hand(text, correct, working):
    assert TASK.rewards["correct"].function(text, MATCH) == correct
    assert TASK.rewards["working"].function(text, MATCH) == pytest.approx(working)


def day_by_the_calendar(question: str) -> str:
    """Reads the story as a person would and lets the standard library count the days."""
    today = DAYS.index(re.match(r"Today is (\w+)\.", question)[1])
    dates = {"today": datetime.date(2024, 1, 1) + datetime.timedelta(today)}  # the first of January 2024 was a Monday
    first = re.search(r"The (\w+) is in (\d+) days?", question)
    dates[first[1]] = dates["today"] + datetime.timedelta(int(first[2]))
    for event, days, way, anchor in re.findall(r"the (\w+) (\d+) days? (after|before) the (\w+)", question):
        dates[event] = dates[anchor] + datetime.timedelta(int(days) * (1 if way == "after" else -1))
    return dates[re.search(r"On which day is the (\w+)\?", question)[1]].strftime("%A")


@pytest.mark.parametrize("difficulty", TASK.difficulties)
def test_the_reference_is_the_day_the_story_leads_to(difficulty):
    for example in TASK.examples("train", 500, 0, difficulty):
        assert day_by_the_calendar(example.prompt[0].content) == example.reference


def test_the_hard_setting_mentions_events_that_do_not_matter():
    for example in TASK.examples("train", 50, 0, "hard"):
        assert len(re.findall(r"\d+ days?", example.prompt[0].content)) == len(example.data["changes"]) + 2


def test_one_day_is_not_written_as_days():
    text = " ".join(example.prompt[0].content for example in TASK.examples("train", 300, 0, "easy"))
    assert " 1 day " in text
    assert "1 days" not in text
