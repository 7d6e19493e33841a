"""The world ``shield``: the six terms of the paper's reward, what the recipe makes of them, and histories that leave it open."""

import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from tests.trainers.worlds.test_contract import CONTRACT
from trainers.contract.events import Message
from trainers.contract.recipes import RECIPES
from trainers.tasks.base import Example
from trainers.worlds.shield import FAKE, GENRES, REAL, Shield, has_numbered_lines, is_alike, list_genres, write_audit

AUTHORS = Shield({"shortest": 60, "longest": 130})
ITEMS = ["lamp", "drum", "rake", "ball", "soup"]
USERS = {name: Example([Message("user", "?")], name, {"items": ITEMS, "fake": name == FAKE}) for name in (REAL, FAKE)}
WORDS = " ".join(["item"] * 80)
PIECES = ["<think>", "</think>", "<answer>", "</answer>", "\n", "Real", "Fake", "fake", "1. home", "2. a", "3.", " ", "x" * 30, "\ud800"]


def write(label, thought):
    return f"<think>\n{thought}\n</think>\n<answer>\n{label}\n</answer>"


def find_weights():
    (stage,) = next(recipe for recipe in RECIPES if recipe.name == "semanticshield").stages
    return stage.spec["task"]["rewards"]


def score(text, example, world=AUTHORS):
    return {name: reward.function(text, example) for name, reward in world.rewards.items()}


def sum_rewards(text, example):
    """R of the paper: the recipe's sum without its constant, which is less where a term has no opinion."""
    scores, weights = score(text, example), find_weights()
    constant = 1 + (weights["caught"] if scores["caught"] is not None else 0) + weights["consistent"] + weights["words"]
    return sum(weight * scores[name] for name, weight in weights.items() if scores[name] is not None) - constant


def test_the_papers_sums():
    assert sum_rewards(write("Fake", WORDS), USERS[FAKE]) == pytest.approx(1.75)
    assert sum_rewards(write("Real", f"{WORDS} fake"), USERS[FAKE]) == pytest.approx(-1.0)
    assert sum_rewards("ten words of a thought that nobody can read here", USERS[REAL]) == pytest.approx(-1.0)
    assert sum_rewards(write("Fake", WORDS), USERS[REAL]) == pytest.approx(-1 + 0.5 + 0.25)
    assert sum_rewards(write("Real", "1. a\n2. b\n3. c"), USERS[REAL]) == pytest.approx(1 + 0.5 + 0.25)
    assert sum_rewards("<answer>fake</answer><think>abcdefghijklmnopqrstuvwxyz</think>", USERS[FAKE]) == pytest.approx(1 - 0.5)


@pytest.mark.parametrize(
    ("text", "name", "value"),
    [
        (write("Real", ""), "format", 1),
        (f"  {write('Fake', 'x')}\n", "format", 1),
        ("<think>\n</think>\n<answer>\nReal\n</answer>", "format", 0),
        ("<think>x</think><answer>Real</answer>", "format", 0),
        (f"well {write('Real', 'x')}", "format", 0),
        (write("real", "x"), "format", 0),
        (write("Real", "Fakery"), "consistent", 1),
        (write("Real", "a FAKE"), "consistent", 0),
        ("<answer>Real</answer>", "caught", 0),
        ("", "caught", 1),
    ],
)
def test_what_a_text_earns_in_a_term(text, name, value):
    assert score(text, USERS[FAKE])[name] == value


def test_errors_count_where_they_can_be_made():
    assert score("<answer>Fake</answer>", USERS[REAL]) | {"caught": None, "cleared": 0} == score("<answer>Fake</answer>", USERS[REAL])
    assert score("<answer>Fake</answer>", USERS[FAKE])["cleared"] is None


def test_three_lines_in_a_row_are_numbered():
    assert has_numbered_lines("so 1. a\n2. b\n3. c")
    assert not has_numbered_lines("1. a\n2. b\nso\n3. c")
    assert not has_numbered_lines("1. a\n2. b\n so 3. c")


@given(st.lists(st.sampled_from(PIECES), max_size=14).map("".join), st.sampled_from([REAL, FAKE]))
@settings(deadline=None)
def test_any_text_earns_between_the_worst_and_the_best(text, name):
    assert -2.25 <= sum_rewards(text, USERS[name]) <= 2.0


@pytest.mark.parametrize("keeps", CONTRACT[:3])
def test_it_keeps_what_every_world_keeps_with_the_authors_lengths_too(keeps):
    keeps(Shield({"shortest": 30, "longest": 60}))


def test_no_room_for_a_thought_is_refused():
    with pytest.raises(ValidationError, match="leaves too little room"):
        Shield({"shortest": 10, "longest": 12})


def test_three_items_of_a_genre_are_as_often_a_fake_users_and_all_else_decides():
    counts, world = Counter(), Shield()
    for example in world.examples("train", 1000, 0, "easy"):
        assert len(set(example.data["items"])) == 5
        counts[is_alike(list_genres(example)), example.data["fake"]] += 1
    assert counts[True, True] == counts[False, False] == 0
    assert 0.2 < (counts[None, True] + counts[None, False]) / 1000 < 0.4
    assert 0.4 < counts[None, True] / (counts[None, True] + counts[None, False]) < 0.6


def test_demonstrations_are_better_than_chance_and_beatable():
    world, rng, right, slips = Shield(), random.Random(0), [], []
    for example in world.examples("train", 600, 0, "easy"):
        text = world.demonstration(example, rng)
        scores = score(text, example, world)
        right.append(scores["correct"])
        slips.append(scores["consistent"])
        assert scores["format"] == ("<think>" in text)
    assert 0.6 < sum(right) / 600 < 0.8
    assert 0.85 < sum(slips) / 600 < 0.95
    assert write_audit(["home"] * 5, REAL).count("\n") == 10
    assert len({item for items in GENRES.values() for item in items}) == 30
