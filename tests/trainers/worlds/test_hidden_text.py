"""The world ``hidden_text``: spans that are opened, and what an episode earns where one is needed and where none is."""

import random

import pytest

from trainers.contract.events import Message
from trainers.contract.recipes import RECIPES
from trainers.tasks.base import Example
from trainers.worlds.hidden_text import HiddenText, find_part, read_span, write_span

LINES = [
    ["Mia", "pet", "cat"],
    ["Mia", "city", "Oslo"],
    ["Mia", "job", "cook"],
    ["Leo", "pet", "owl"],
    ["Leo", "city", "Rome"],
    ["Leo", "job", "cook"],
]
NEEDED = Example([Message("user", "…")], "Rome", {"lines": LINES, "needed": 5, "attribute": "city", "who": "Leo"})
SEEN = Example([Message("user", "…")], "Rome", {"lines": LINES, "needed": None, "attribute": "city", "who": "Leo"})


def play(example, *turns):
    world = HiddenText()
    text = world.write_episode(example, turns)
    return tuple(reward.function(text, example) for reward in world.rewards.values())


@pytest.mark.parametrize(
    ("example", "turns", "scores"),
    [
        (NEEDED, ("<open>4-6</open>", "<answer>Rome</answer>"), (1, 1, 1, None)),
        (NEEDED, ("<open>5</open>", "<answer>Rome</answer>"), (1, 1, 1, None)),
        (NEEDED, ("<open>1-3</open>", "<answer>Oslo</answer>"), (0, 1, 0, None)),
        (NEEDED, ("<answer>Rome</answer>",), (1, 1, 0, None)),
        (NEEDED, ("<open>1-6</open>", "<answer>Rome</answer>"), (1, 0, 0, None)),  # the paper's malformed box
        (NEEDED, ("<open>6-4</open>", "<answer>Rome</answer>"), (1, 0, 0, None)),
        (SEEN, ("<answer>Rome</answer>",), (1, 1, None, 1)),
        (SEEN, ("<open>4-6</open>", "<answer>Rome</answer>"), (1, 1, None, 0)),
    ],
)
def test_what_an_episode_earns(example, turns, scores):
    assert play(example, *turns) == scores


def test_a_span_shows_its_lines_and_no_others():
    world = HiddenText()
    assert world.write_episode(NEEDED, ["<open>2-3</open>"]).endswith("<information>Mia's city is Oslo. Mia's job is cook.</information>")
    for span in ("0-2", "5-7", "1-4", "x", "", "1-2-3", "٣"):
        assert world.write_episode(NEEDED, [f"<open>{span}</open>"]).endswith("<information>nothing</information>")


def test_spans_are_read_and_written():
    assert (read_span("4-6"), read_span("4"), read_span("4-")) == ((4, 6), (4, 4), None)
    assert [write_span(find_part(line)) for line in (1, 3, 4, 12)] == ["1-3", "1-3", "4-6", "10-12"]


@pytest.mark.parametrize(("seen", "low", "high"), [(0.0, 0, 0), (0.3, 0.2, 0.4), (1.0, 1, 1)])
def test_so_many_questions_are_answered_by_what_is_seen(seen, low, high):
    examples = HiddenText({"seen": seen}).examples("train", 200, 0, "hard")
    share = sum(example.data["needed"] is None for example in examples) / len(examples)
    assert low <= share <= high
    for example in examples:
        fact = f"{example.data['who']}'s {example.data['attribute']} is {example.reference}."
        assert (fact in example.prompt[0].content) == (example.data["needed"] is None)


def test_demonstrations_are_of_mixed_quality():
    world, rng = HiddenText(), random.Random(0)
    made = [(example, world.demonstration(example, rng)) for example in world.examples("train", 200, 0, "medium")]
    right = sum(world.rewards["correct"].function(text, example) for example, text in made) / len(made)
    assert 0.4 < right < 0.75
    assert 0.3 < sum("<open>" in text for _, text in made) / len(made) < 0.8


def test_the_recipe_pays_answer_and_form_as_the_paper_does():
    (stage,) = next(recipe for recipe in RECIPES if recipe.name == "chain-of-focus").stages
    weights = {name: reward.weight for name, reward in HiddenText().rewards.items()} | stage.spec["task"]["rewards"]
    assert {name: weight for name, weight in weights.items() if weight} == {"correct": 1.0, "format": 0.5}
    for scores, reward in (((1, 1), 1.5), ((1, 0), 1.0)):
        assert weights["correct"] * scores[0] + weights["format"] * scores[1] == reward
