"""The world ``conventions``: what an answer earns, and that notes say what it should be."""

import random

import pytest

from trainers.worlds.conventions import HOUSE, Conventions, make_example

HIDDEN = make_example("rice", [7, 5], {})


@pytest.mark.parametrize(
    ("text", "scores"),
    [
        ("<answer>12 rice oz</answer>", (1, 1, 1)),
        ("<answer>12 rice kg</answer>", (0, 1, 1)),
        ("<answer>11 rice oz</answer>", (0, 0, 1)),
        ("12 rice oz", (0, 0, 0)),
        ("", (0, 0, 0)),
    ],
)
def test_what_an_answer_earns(text, scores):
    assert tuple(reward.function(text, HIDDEN) for reward in Conventions().rewards.values()) == scores


def test_notes_stand_in_the_prompt_and_decide_the_answer():
    assert HIDDEN.prompt[0].content == "Notes: none. 7+5 rice?"
    noted = make_example("rice", [7, 5], {"rope": "lb", "rice": "cm"})
    assert noted.prompt[0].content == "Notes: rope lb, rice cm. 7+5 rice?"
    assert noted.reference == "12 rice cm"
    assert make_example("rice", [7, 5], {"rope": "lb"}).reference == HIDDEN.reference


def test_prompts_hide_the_convention_and_demonstrations_do_not_know_it():
    world = Conventions()
    told = Conventions({"told": True})
    assert all(not example.data["notes"] for example in world.examples("train", 50, 0, "easy"))
    assert all(example.data["notes"][example.data["good"]] == HOUSE[example.data["good"]] for example in told.examples("train", 50, 0, "easy"))
    demonstrations, rng = world.draw_demonstrations(600, 0, "easy"), random.Random(0)
    assert demonstrations == world.draw_demonstrations(600, 0, "easy")
    noted = [example for example in demonstrations if example.data["notes"]]
    assert 0.65 < len(noted) / 600 < 0.85
    follows = [f" {example.data['notes'][example.data['good']]}<" in world.demonstration(example, rng) for example in noted]
    assert all(follows)
    units = [
        world.demonstration(example, rng).split()[2][:2] == HOUSE[example.data["good"]] for example in demonstrations if not example.data["notes"]
    ]
    assert 0.12 < sum(units) / len(units) < 0.4  # one of four, by chance
