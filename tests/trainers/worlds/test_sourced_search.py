"""The world ``sourced_search``: what an episode earns, and whom its demonstrations imitate."""

import random

import pytest
from pydantic import ValidationError

from trainers.contract.events import Message
from trainers.contract.search_behaviours import belongs_to_arm, read_search_episode, tag_behaviours
from trainers.tasks.base import Example
from trainers.worlds.sourced_search import SEARCHES, SourcedSearch, is_teachers

DATA = {"person": "Eva", "attribute": "city", "record": "Rome", "rumour": "Oslo", "case": 0}
EXAMPLE = Example([Message("user", "What is the city of Eva?")], "Rome", DATA)
NOISE = {"junk": 0.3, "failures": 0.25, "misprints": 0.3}
ARMS = ("behaviours", "behaviours-right", "behaviours-wrong", "right", "random")


def play(world, example, *turns):
    text = world.write_episode(example, turns)
    return {name: reward.function(text, example) for name, reward in world.rewards.items()}


def test_what_an_episode_earns():
    asked = "<search>Eva city</search>"
    once = play(SourcedSearch(), EXAMPLE, asked, "<answer>Rome</answer>")
    assert once == {"correct": 1, "verifies": 0, "weighs": 1, "adapts": None, "recovers": None}
    rumour = play(SourcedSearch(), EXAMPLE, asked, asked, "<answer>Oslo</answer>")
    assert (rumour["correct"], rumour["verifies"], rumour["weighs"]) == (0, 1, 0)
    failing = SourcedSearch({"failures": 1.0})
    assert play(failing, EXAMPLE, asked, asked, "<answer>Rome</answer>")["recovers"] == 0, "it gave up after the last one"
    straying = SourcedSearch({"junk": 1.0})
    assert play(straying, EXAMPLE, asked, "<search>city Eva</search>", "<answer>Rome</answer>")["adapts"] == 0
    assert "Eva city: " not in straying.write_episode(EXAMPLE, [asked])


def test_a_misprint_is_another_value_than_record_and_rumour_and_a_query_beside_the_point_finds_something_else():
    step = SourcedSearch({"misprints": 1.0}).step(EXAMPLE, SourcedSearch().begin(EXAMPLE), "policy", "<search>Eva city</search>", random.Random(0))
    assert "rumour Oslo" in step.text
    assert "Rome" not in step.text
    step = SourcedSearch().step(EXAMPLE, SourcedSearch().begin(EXAMPLE), "policy", "<search>Eva job</search>", random.Random(0))
    assert "Eva" not in step.text
    assert step.facts["junk"]


def test_the_way_goes_on_through_noise_or_says_that_too_few_turns_are_left():
    world, right, given_up = SourcedSearch(NOISE), 0, 0
    for example in world.examples("train", 60, 0, "easy"):
        try:
            gold = world.gold(example)
        except LookupError:
            given_up += 1
            continue
        tags = tag_behaviours(read_search_episode(gold))
        assert world.rewards["correct"].function(gold, example) == 1
        assert {tags["verifies"], tags["weighs"]} == {True}
        assert False not in tags.values()
        right += 1
    assert right > 30 > given_up


@pytest.mark.parametrize("arm", ARMS)
def test_every_second_demonstration_is_of_the_arm_with_as_many_searches(arm):
    world = SourcedSearch({"primed": arm, **NOISE})
    drawn = world.draw_demonstrations(40, 0, "medium")
    assert len(drawn) == 40
    for place, example in enumerate(drawn):
        assert is_teachers(example) == bool(place % 2)
        text = world.demonstration(example, random.Random(place))
        if place % 2:
            episode = read_search_episode(text)
            assert len(episode.turns) == SEARCHES
            assert belongs_to_arm(arm, tag_behaviours(episode), episode.answer == example.reference)
            assert world.demonstration(example, random.Random(99)) == text


@pytest.mark.parametrize(("arm", "missing"), [("behaviours", "junk"), ("behaviours-right", "failures"), ("behaviours-wrong", "misprints")])
def test_an_arm_that_no_episode_can_belong_to_is_refused(arm, missing):
    with pytest.raises(ValidationError, match=f"{missing}.* above 0"):
        SourcedSearch({"primed": arm, **NOISE, missing: 0.0})
    SourcedSearch({"primed": "right"})


def test_demonstrations_of_no_arm_are_of_mixed_quality():
    world, rng = SourcedSearch(), random.Random(0)
    made = [(example, world.demonstration(example, rng)) for example in world.examples("train", 200, 0, "easy")]
    right = sum(world.rewards["correct"].function(text, example) for example, text in made) / len(made)
    assert 0.45 < right < 0.75  # 0.4 + 0.3 / 2 + 0.3 / 6
