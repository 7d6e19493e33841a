"""The world ``profiles``: what an answer earns, and that a question has the same facts wherever it is drawn."""

import random

import pytest

from trainers.contract.events import Message
from trainers.tasks.base import Example
from trainers.worlds.profiles import TOPICS, Profiles, list_stable_facts, read_claims

FACTS = {"city": "Rome", "pet": "cat", "boss": "Max", "job": "cook"}
EXAMPLE = Example([Message("user", "?")], "city Rome, pet cat", {"person": "Eva", "asked": list(FACTS), "facts": FACTS, "stable": ["city", "pet"]})


@pytest.mark.parametrize(
    ("answer", "scores"),
    [
        ("city Rome, pet cat", (1, 1, 1, 1)),
        ("pet cat, boss Max, city Rome", (1, 1, 1, 1)),
        ("pet cat, boss Leo, city Rome", (0, 1, 2 / 3, 1)),
        ("city Rome", (0, 0.5, 1, 1)),
        ("city Rome, city Oslo, pet cat", (0, 1, 2 / 3, 1)),
        ("", (0, 0, 0, 1)),
        ("Rome", (0, 0, 0, 0)),
        ("city Rome, , pet cat", (0, 0, 0, 0)),
        ("city Rome, " * 40, (0, 0, 0, 0)),
    ],
)
def test_what_an_answer_earns(answer, scores):
    made = [reward.function(f"<answer>{answer}</answer>", EXAMPLE) for reward in Profiles().rewards.values()]
    assert made == pytest.approx(scores)


def test_claims_are_pairs_of_topic_and_value_each_once():
    assert read_claims("city Rome, pet cat, city Rome") == [("city", "Rome"), ("pet", "cat")]
    assert read_claims("") == []
    assert read_claims(None) is read_claims("age 7") is None


def test_some_facts_of_a_person_are_the_same_in_every_question_and_the_others_hang_on_the_question():
    world, seen = Profiles({"stable": 0.5}), {}
    for example in [one for split in ("train", "heldout") for one in world.examples(split, 300, 0, "easy")]:
        data, known = example.data, list_stable_facts(example.data["person"], 0.5)
        assert len(known) == len(TOPICS) / 2
        assert 0 < len(data["stable"]) < len(data["asked"]) == 4
        assert all(data["facts"][topic] == value for topic, value in known.items())
        assert seen.setdefault(example.prompt[0].content, data) == data
    others = {(data["person"], topic): set() for data in seen.values() for topic in data["asked"] if topic not in data["stable"]}
    for data in seen.values():
        for topic in data["asked"]:
            if topic not in data["stable"]:
                others[data["person"], topic].add(data["facts"][topic])
    assert sum(len(values) > 1 for values in others.values()) > len(others) / 2


def test_demonstrations_are_right_about_what_is_the_same_everywhere_and_guess_about_the_rest():
    world, rng, right = Profiles(), random.Random(0), {True: [], False: []}
    for example in world.examples("train", 300, 0, "easy"):
        (turn,) = world.turns(example, rng)
        for topic, value in read_claims(turn.text[len("<answer>") : -len("</answer>")]):
            right[topic in example.data["stable"]].append(example.data["facts"][topic] == value)
    assert all(right[True])
    assert 0.05 < sum(right[False]) / len(right[False]) < 0.4
