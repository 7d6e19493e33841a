"""The word problems: the measured easy setting, and scoring by hand-worked cases."""

import re

import pytest

from trainers.contract.events import Message
from trainers.tasks.base import Example
from trainers.tasks.mini_gsm import MiniGsm

TASK = MiniGsm()
MAX = Example([Message("user", "Max has 3 apples, gets 3, buys 5, drops 1. How many?")], "10", {"start": 3, "changes": [3, 5, -1]})
GOLD = "<think>3+3=6 6+5=11 11-1=10</think><answer>10</answer>"


def test_the_gold_answer_shows_one_equation_for_each_change():
    assert TASK.gold(MAX) == GOLD


def score(name: str, text: str) -> float | None:
    return TASK.rewards[name].function(text, MAX)


@pytest.mark.parametrize(
    ("text", "correct", "form", "working"),
    [
        (GOLD, 1, 1, 1),
        (f"  {GOLD}\n", 1, 1, 1),
        ("<think></think><answer>10</answer>", 1, 1, 0),
        ("<think>3+3=6 6+5=11</think><answer>11</answer>", 0, 1, 2 / 3),
        ("<think>3+3=6 6+5=12 12-1=11</think><answer>11</answer>", 0, 1, 2 / 3),  # one slip, carried on consistently
        ("<think>3+3=6 7+5=12 12-1=11</think><answer>11</answer>", 0, 1, 2 / 3),  # did not start from the total before
        ("<think>3+3=6 6+5=11 11-1=10 10+0=10</think><answer>10</answer>", 1, 1, 3 / 4),
        ("<think>1+1=2 1+1=2 1+1=2</think><answer>10</answer>", 1, 1, 0),  # true, but about another story
        ("<think>3+3=6 6+5=11 11-1=10</think><answer>ten</answer>", 0, 1, 1),
        ("<answer>10</answer>", 0, 0, 0),
        ("<think>3+3=6<think></think><answer>10</answer>", 0, 0, 0),
        ("<think>x</think><answer>9</answer><answer>10</answer>", 0, 0, 0),
        ("10", 0, 0, 0),
        (GOLD + " and that is it", 0, 0, 0),
        ("<think>3+3=6 6+5=11 11-1=10</think> <answer>10</answer>", 0, 0, 0),
        ("<answer>10</answer><think></think>", 0, 0, 0),
    ],
)
def test_it_scores_as_worked_out_by_hand(text, correct, form, working):
    assert score("correct", text) == correct
    assert score("format", text) == form
    assert score("working", text) == pytest.approx(working)


def test_brevity_falls_from_the_gold_length_to_nothing_at_twice_it():
    half_again = GOLD.replace("<think>", "<think>" + "x" * (len(GOLD) // 2))
    assert score("brevity", GOLD) == 1.0
    assert score("brevity", half_again) == pytest.approx(0.5, abs=0.02)
    assert score("brevity", GOLD.replace("<think>", "<think>" + "x" * 2 * len(GOLD))) == 0.0


def test_the_easy_setting_is_the_one_that_was_measured():
    examples = TASK.examples("train", 4000, 0, "easy")
    changes = [change for example in examples for change in example.data["changes"]]
    lengths = [len(example.data["changes"]) for example in examples]
    assert {example.data["start"] for example in examples} == set(range(3, 16))
    assert {abs(change) for change in changes} == {1, 2, 3, 4, 5}
    assert set(lengths) == {2, 3}
    assert abs(lengths.count(2) / len(lengths) - 0.5) < 0.03
    # A first loss happens half the time, when the start leaves at least 1: for 3, 4 and 5 only 2, 3 and 4 of the 5 sizes do.
    losses = sum(example.data["changes"][0] < 0 for example in examples) / len(examples)
    assert losses == pytest.approx((0.4 + 0.6 + 0.8 + 10) / 13 / 2, abs=0.025)
    for example in examples:
        total = example.data["start"]
        for change in example.data["changes"]:
            total += change
            assert total >= 1


def test_the_story_says_what_the_data_says():
    for example in TASK.examples("train", 200, 0, "hard"):
        numbers = [int(number) for number in re.findall(r"\d+", example.prompt[0].content)]
        assert numbers == [example.data["start"], *(abs(change) for change in example.data["changes"])]
        assert example.reference == str(example.data["start"] + sum(example.data["changes"]))
