"""The world ``toolbox``: what its tools say, the calls that questions need, and how seldom demonstrations make them."""

import random

import pytest

from trainers.contract.events import Message
from trainers.tasks.base import Example
from trainers.worlds.toolbox import KINDS, SINGLE, Toolbox, answer_call, draw_question, work_out

PEOPLE = {"Leo": {"friend": "Mia", "boss": "Max", "age": 20, "city": "Oslo", "job": "cook"}, "Mia": {"age": 31, "city": "Rome"}}
DATA = {"people": PEOPLE, "cities": {"Rome": {"people": 40, "far": 7}}, "plan": [["friend", "Leo"], ["city", "Mia"], ["far", "Rome"]]}
EXAMPLE = Example([Message("user", "How far is the city of the friend of Leo?")], "7", DATA)
FRIEND = "<friend>Leo</friend><information>Mia</information>"


@pytest.mark.parametrize(
    ("tool", "argument", "text"),
    [
        ("friend", "Leo", "Mia"),
        ("age", "Mia", "31"),
        ("far", "Rome", "7"),
        ("people", "Rome", "40"),
        ("search", "Leo job", "Leo's job is cook."),
        ("calc", "20+31", "51"),
        ("far", "Leo", "nothing"),
        ("friend", "Rome", "nothing"),
        ("search", "Leo", "nothing"),
    ],
)
def test_what_a_tool_says(tool, argument, text):
    assert answer_call(DATA, tool, argument) == text


def test_sums_are_of_two_numbers():
    assert [work_out(one) for one in ("7 - 9", "12*12", "1+2+3", "٣+1", "99999+1", "")] == ["-2", "144", *["nothing"] * 4]


@pytest.mark.parametrize(
    ("text", "scores"),
    [
        (f"{FRIEND}<city>Mia</city><information>Rome</information><far>Rome</far><information>7</information><answer>7</answer>", (1, 1, 1, 1)),
        (f"{FRIEND}<age>Mia</age><information>31</information><answer>7</answer>", (1, 1 / 3, 0.5, 1)),
        (f"{FRIEND}{FRIEND}<answer>8</answer>", (0, 1 / 3, 0.5, 1)),
        ("<answer>7</answer>", (1, 0, 1, 1)),
        ("7", (0, 0, 1, 0)),
    ],
)
def test_what_an_episode_earns(text, scores):
    assert [reward.function(text, EXAMPLE) for reward in Toolbox().rewards.values()] == pytest.approx(scores)


@pytest.mark.parametrize("kind", sorted({kind for kinds in KINDS.values() for kind in kinds}))
def test_a_question_takes_the_tools_that_its_kind_names(kind):
    for seed in range(20):
        example = draw_question(random.Random(seed), kind)
        assert sorted(tool for tool, _ in example.data["plan"]) == sorted(kind.split())
        tool, argument = example.data["plan"][-1]
        assert example.reference in answer_call(example.data, tool, argument)


def test_hardly_a_demonstration_is_right_that_takes_more_than_one_tool():
    world, rng, right = Toolbox(), random.Random(0), {True: [], False: []}
    for example in world.examples("train", 600, 0, "easy"):
        is_single = len(example.data["plan"]) == 1
        right[is_single].append(world.rewards["correct"].function(world.demonstration(example, rng), example))
    assert 0.3 < sum(right[True]) / len(right[True]) < 0.5
    assert 0.05 < sum(right[False]) / len(right[False]) < 0.2
    assert draw_question(rng, SINGLE).data["plan"][0][0] == SINGLE
