"""The world ``planned_search``: how sub-questions are looked up one after the other, and what plans are worth."""

import random

from trainers.contract.events import Message
from trainers.tasks.base import Example
from trainers.worlds.base import replay_episode
from trainers.worlds.planned_search import PlannedSearch, fill_in_answers, is_single_step, split_plan

FACTS = [["Eva", "friend", "Leo"], ["Leo", "city", "Rome"], ["Eva", "city", "Oslo"]]
DATA = {"facts": FACTS, "evidence": [0, 1], "person": "Eva", "chain": ["friend"], "attribute": "city"}
EXAMPLE = Example([Message("user", "What is the city of the friend of Eva?")], "Rome", DATA)
WORLD = PlannedSearch({"hits": 1})
GOLD = (
    "<plan>Eva's friend; #1's city</plan><information>Eva's friend is Leo.</information>"
    "<sub>Leo</sub><information>Leo's city is Rome.</information><answer>Rome</answer>"
)


def scores(text: str) -> dict[str, float | None]:
    return {name: reward.function(text, EXAMPLE) for name, reward in WORLD.rewards.items()}


def test_an_episode_by_hand() -> None:
    assert WORLD.gold(EXAMPLE) == GOLD
    assert scores(GOLD) == {"correct": 1, "format": 1, "evidence": 1, "single": 1}
    at_once = "<plan>Eva's friend's city</plan><information>Eva's city is Oslo.</information><answer>Rome</answer>"
    assert scores(at_once) == {"correct": 1, "format": 1, "evidence": 0, "single": 0}


def test_a_wrong_answer_leads_the_next_sub_question_astray() -> None:
    text = "<plan>Eva's friend; #1's city</plan><information>Eva's friend is Leo.</information><sub>Eva</sub>"
    assert WORLD.respond(EXAMPLE, text) == "<information>Eva's city is Oslo.</information>"


def test_a_second_plan_and_answers_to_nothing_are_not_read() -> None:
    assert WORLD.respond(EXAMPLE, "<sub>Leo</sub>") == "<information>nothing</information>"
    again = GOLD[: GOLD.index("<sub>")] + "<plan>Eva's city</plan>"
    assert WORLD.respond(EXAMPLE, again) == "<information>nothing</information>"
    assert WORLD.respond(EXAMPLE, "<plan></plan>") == "<information>nothing</information>"


def test_how_a_plan_is_read() -> None:
    assert split_plan(" Eva's friend;; #1's city ;") == ["Eva's friend", "#1's city"]
    assert len(split_plan("a;" * 100)) <= 6
    assert fill_in_answers("#1's #2", ["Leo", "city"]) == "Leo's city"
    assert [is_single_step(text) for text in ("Eva's friend", "#1's city", "Eva's friend's city", "Eva")] == [True, True, False, False]


def test_plans_and_answers_of_the_demonstrations_are_of_mixed_quality() -> None:
    world, rng, found = PlannedSearch(), random.Random(0), []
    for example in world.examples("train", 800, 0, "easy"):
        text = "".join(said.text for said in world.turns(example, rng))
        replay = replay_episode(world, example, text)
        assert (replay.done, replay.rest, replay.state["errors"]) == (True, "", 0)
        found.append([reward.function(text, example) or 0.0 for reward in world.rewards.values()])
    correct, form, _, single = (sum(column) / len(column) for column in zip(*found, strict=True))
    assert form == 1
    assert 0.38 < single < 0.52
    assert 0.25 < correct < 0.55
