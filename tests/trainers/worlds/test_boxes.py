"""The world ``boxes``: overlaps, the best matching, what an answer earns, and pairs in which what cannot be read loses."""

import random
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainers.contract.events import Message
from trainers.contract.recipes import RECIPES
from trainers.data.pairs import choose_by_accuracy
from trainers.tasks.base import Example
from trainers.worlds.boxes import Boxes, match_boxes, measure_iou, read_boxes, score_matches

TRUE = [(0, 0, 2, 2), (3, 1, 5, 4)]
EXAMPLE = Example([Message("user", "?")], "0 0 2 2, 3 1 5 4", {"boxes": [list(box) for box in TRUE]})
SIDES = st.tuples(st.integers(0, 4), st.integers(0, 4), st.integers(1, 3), st.integers(1, 3))
BOXES = st.lists(SIDES.map(lambda one: (one[0], one[1], one[0] + one[2], one[1] + one[3])), max_size=4)


def test_the_cards_numbers():
    overlaps = match_boxes([(0, 0, 10, 5)], [(0, 0, 10, 10), (20, 20, 30, 30)])
    assert overlaps == [0.5, 0.0]
    assert (score_matches(overlaps, 0.5), score_matches(overlaps, 0.75)) == (0.25, 0.0)


def test_overlaps():
    assert measure_iou((0, 0, 2, 2), (1, 1, 3, 3)) == pytest.approx(1 / 7)
    assert measure_iou((0, 0, 2, 2), (2, 0, 4, 2)) == 0
    assert measure_iou((1, 1, 4, 2), (1, 1, 4, 2)) == 1


@given(BOXES, BOXES)
def test_no_other_matching_has_a_larger_sum(found, true):
    overlaps = match_boxes(found, true)
    assert len(overlaps) == len(true)
    assert all(0 <= one <= 1 for one in overlaps)
    most = max(
        sum(measure_iou(found[place], true[number]) for place, number in zip(places, numbers, strict=False))
        for places in permutations(range(len(found)))
        for numbers in permutations(range(len(true)))
    )
    assert sum(overlaps) == pytest.approx(most)
    assert sum(match_boxes(found[::-1], true)) == pytest.approx(most)


@pytest.mark.parametrize(
    ("answer", "scores"),
    [
        ("0 0 2 2, 3 1 5 4", (1, 1, 1, 1)),
        ("3 1 5 4, 0 0 2 2", (1, 1, 1, 1)),
        ("0 0 2 3, 3 1 5 4", (1, 5 / 6, 0.5, 1)),
        ("0 0 2 2", (0, 0.5, 0.5, 1)),
        ("0 0 2 2, 3 1 5 4, 0 0 1 1", (0, 1, 1, 1)),
        ("0 0 2 2, 3 1 5", (0, 0, 0, 0)),
        ("2 0 0 2", (0, 0, 0, 0)),
        ("", (0, 0, 0, 0)),
    ],
)
def test_what_an_answer_earns(answer, scores):
    made = [reward.function(f"<answer>{answer}</answer>", EXAMPLE) for reward in Boxes().rewards.values()]
    assert made == pytest.approx(scores)


def test_what_is_no_list_of_boxes():
    assert read_boxes("0 0 1 1") == [(0, 0, 1, 1)]
    assert [read_boxes(one) for one in (None, "0 0 1 ١", "0 0 1 1,", ", ".join(["0 0 1 1"] * 5), "0 0 1 1000")] == [None] * 5


def test_the_grid_shows_the_boxes_and_demonstrations_are_of_every_kind():
    world, rng, scores = Boxes(), random.Random(0), []
    for example in world.examples("train", 300, 0, "medium"):
        rows = [row.split() for row in example.prompt[0].content.removesuffix(". Boxes?").split(" / ")]
        cells = {(x, y) for left, top, right, bottom in example.data["boxes"] for x in range(left, right) for y in range(top, bottom)}
        assert {(x, y) for y, row in enumerate(rows) for x, cell in enumerate(row) if cell != "."} == cells
        scores.append([reward.function(world.demonstration(example, rng), example) for reward in world.rewards.values()])
    right, _, tight, formed = (sum(column) / 300 for column in zip(*scores, strict=True))
    assert 0.35 < right < 0.75
    assert 0.4 < tight < 0.8
    assert 0.85 < formed < 0.95


def test_an_answer_that_cannot_be_read_never_wins_a_pair():
    world = Boxes()
    texts = ["<answer>0 0 2</answer>", "<answer>0 0 2 2</answer>", "<answer>0 0 2 2, 3 1 5 4</answer>"]
    scores = [{name: reward.function(text, EXAMPLE) for name, reward in world.rewards.items()} for text in texts]

    class Attempt:
        task = world

    assert choose_by_accuracy(Attempt, texts, scores) == (texts[2], texts[0])
    assert choose_by_accuracy(Attempt, texts[:2], scores[:2]) is None
    assert [stage.title for recipe in RECIPES if recipe.name == "ui-ug" for stage in recipe.stages] == ["GRPO", "DPO"]
