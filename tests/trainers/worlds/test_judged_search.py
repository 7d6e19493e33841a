"""The world ``judged_search``: when which verdict is right, and what a turn without one leads to."""

import random

from trainers.contract.events import Message
from trainers.tasks.base import Example
from trainers.worlds.base import replay_episode
from trainers.worlds.judged_search import JudgedSearch

FACTS = [["Eva", "friend", "Leo"], ["Leo", "friend", "Eva"], ["Leo", "city", "Rome"], ["Eva", "city", "Oslo"]]
QUESTION = [Message("user", "What is the city of the friend of Eva?")]
EXAMPLE = Example(QUESTION, "Rome", {"facts": FACTS, "evidence": [0, 2], "person": "Eva", "attribute": "city"})
FOUND = "<information>Eva's friend is Leo. Leo's friend is Eva.</information>"


def scores(text: str) -> dict[str, float | None]:
    return {name: reward.function(text, EXAMPLE) for name, reward in JudgedSearch().rewards.items()}


def test_an_episode_by_hand() -> None:
    world = JudgedSearch()
    gold = (
        f"<search>Eva's friend</search>{FOUND}<judge>yes</judge><search>Leo's city</search>"
        "<information>Leo's city is Rome. Leo's friend is Eva.</information><judge>yes</judge><answer>Rome</answer>"
    )
    assert world.gold(EXAMPLE) == gold
    assert scores(gold) == {"correct": 1, "format": 1, "evidence": 1, "useful": 1, "verdict": 1}
    assert scores(gold.replace("<judge>yes", "<judge>no", 1))["verdict"] == 0.5
    assert scores("<answer>Rome</answer>") == {"correct": 1, "format": 1, "evidence": 0, "useful": 0, "verdict": None}


def test_a_turn_after_a_search_needs_a_verdict_and_no_other_turn_has_one() -> None:
    without = f"<search>Eva's friend</search>{FOUND}<answer>Rome</answer>"
    assert (scores(without)["correct"], scores(without)["format"]) == (0, 0)
    assert scores("<judge>yes</judge><answer>Rome</answer>")["format"] == 0


def test_no_is_right_on_noise_and_on_the_wrong_person() -> None:
    world = JudgedSearch({"junk": 1.0})
    replay = replay_episode(world, EXAMPLE, "<search>Eva's friend</search>")
    assert replay.state["pending"] == "no"
    assert replay_episode(JudgedSearch({"hits": 1}), EXAMPLE, "<search>Eva's city</search>").state["pending"] == "no"
    assert replay_episode(JudgedSearch({"hits": 1}), EXAMPLE, "<search>Eva's friend</search>").state["pending"] == "yes"


def test_four_in_ten_demonstrated_verdicts_are_wrong() -> None:
    world, rng, verdicts = JudgedSearch(), random.Random(0), []
    for example in world.examples("train", 300, 0, "medium"):
        replay = replay_episode(world, example, "".join(said.text for said in world.turns(example, rng)))
        assert (replay.done, replay.rest, replay.state["errors"]) == (True, "", 0)
        verdicts += [verdict == right for verdict, right in replay.state["verdicts"]]
    assert 0.5 < sum(verdicts) / len(verdicts) < 0.7
