"""The world ``personal_style``: users and their rules, named steps, and what an answer earns."""

import random
from collections import Counter

import pytest

from trainers.contract.events import Message
from trainers.tasks.base import Example
from trainers.worlds.personal_style import USERS, PersonalStyle, count_lines, grade_tags, is_in_order, keep_lines, write_steps

LINES = ["3+3=6", "6-1=5"]
EXAMPLE = Example([Message("user", "?")], "5", {"user": "Eva", "style": "last", "lines": LINES, "earlier": [1]})
WHOLE = "<examine>1</examine><pattern>last</pattern><solve>6-1=5</solve><answer>5</answer>"


@pytest.mark.parametrize(
    ("text", "scores"),
    [
        (WHOLE, (1, 1, 1, 1)),
        (WHOLE.replace("6-1=5", "3+3=6 6-1=5"), (1, 0.5, 1, 1)),
        (WHOLE.replace("6-1=5", "none"), (1, 0.5, 1, 1)),
        (WHOLE.replace("6-1=5", "well 5"), (1, 0, 1, 1)),
        (WHOLE.replace("<pattern>last</pattern>", ""), (1, 1, 2 / 3, 0)),
        (WHOLE.replace("last", ""), (1, 1, 2 / 3, 1)),
        (WHOLE.replace("last", "<b>last</b>"), (1, 1, 0, 0)),
        (f"{WHOLE}<answer>6</answer>", (1, 1, 1, 0)),
        ("<answer>5</answer>", (1, 0, 0, 0)),
        ("5", (0, 0, 0, 0)),
    ],
)
def test_what_an_answer_earns(text, scores):
    assert [reward.function(text, EXAMPLE) for reward in PersonalStyle().rewards.values()] == pytest.approx(scores)


def test_styles_and_named_steps():
    assert [keep_lines(LINES, style) for style in ("short", "last", "all")] == [[], ["6-1=5"], LINES]
    assert write_steps(EXAMPLE, "last", "5") == WHOLE
    assert grade_tags(write_steps(EXAMPLE, "short", "5", ["examine"])) == pytest.approx(2 / 3)
    assert not is_in_order(WHOLE.removeprefix("<examine>1</examine>"))
    assert count_lines("none") == 0
    assert count_lines("") is count_lines(None) is count_lines("5") is None


def test_a_users_rule_is_seen_in_earlier_answers_alone_and_no_name_is_told():
    counts = Counter(USERS.values())
    assert set(counts.values()) == {4}
    for example in PersonalStyle().examples("train", 60, 0, "medium"):
        assert USERS[example.data["user"]] == example.data["style"]
        earlier = example.prompt[0].content.removeprefix("Earlier: ").partition(". ")[0].split("; ")
        assert [len(one.split()) - 1 for one in earlier] == example.data["earlier"]
        assert {"short": max(example.data["earlier"]) == 0, "last": set(example.data["earlier"]) == {1}, "all": min(example.data["earlier"]) > 1}[
            example.data["style"]
        ]


def test_demonstrations_are_of_every_kind():
    world, rng = PersonalStyle(), random.Random(0)
    scores = [
        [reward.function(world.demonstration(example, rng), example) for reward in world.rewards.values()]
        for example in world.examples("train", 300, 0, "easy")
    ]
    right, style, tags, _ = (sum(column) / 300 for column in zip(*scores, strict=True))
    assert 0.65 < right < 0.85
    assert 0.5 < style < 0.8
    assert 0.75 < tags < 0.95
