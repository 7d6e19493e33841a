"""The world ``described_facts``: descriptions, what an episode earns, and facts told either way."""

import random

import pytest
from pydantic import ValidationError

from trainers.contract.events import Message
from trainers.tasks.base import Example
from trainers.worlds.described_facts import DescribedFacts, list_needed_triples, list_told_triples, read_triples, split_description

NODES = {
    "Leo": {"friend": ["Mia"], "boss": ["Max"], "pet": [], "city": "Rome", "job": "cook"},
    "Mia": {"friend": ["Leo"], "boss": ["Leo"], "pet": [], "city": "Oslo", "job": "pilot"},
}
SUPPORT = ["Leo friend Mia.", "Mia city Oslo."]
PROMPT = [Message("user", "What is the city of the friend of Leo? Mia befriended Leo. Mia city Oslo. pilot employs Mia.")]
EXAMPLE = Example(
    PROMPT, "Oslo", {"nodes": NODES, "support": SUPPORT, "inverse": ["Mia befriended Leo.", "Oslo houses Mia."], "beside": [], "missing": [0]}
)


@pytest.mark.parametrize(
    ("text", "scores"),
    [
        ("<describe>Leo friend Mia. Mia city Oslo.</describe><think>Mia city Oslo.</think><answer>Oslo</answer>", (1, 1, 1, 1)),
        ("<describe>Mia befriended Leo.</describe><think>Mia city Rome.</think><answer>Rome</answer>", (0, 0.5, 0.5, 1)),
        ("<describe></describe><answer>Oslo</answer>", (1, 0, 0, 1)),
        ("<think>Mia city Oslo.</think><answer>Oslo</answer>", (0, 0, 0, 0)),
        ("<describe>Mia city Oslo.</describe>Oslo", (0, 0.5, 1, 0)),
        ("<describe>Mia city Oslo.<think></describe><answer>Oslo</answer>", (0, 0, 0, 0)),
    ],
)
def test_what_an_episode_earns(text, scores):
    assert tuple(reward.function(text, EXAMPLE) for reward in DescribedFacts().rewards.values()) == scores


def test_facts_are_the_same_whichever_way_they_are_told():
    assert read_triples("Mia befriended Leo. Leo friend Mia. Oslo houses Mia. so it is. Mia likes Leo") == [
        ("Leo", "friend", "Mia"),
        ("Mia", "city", "Oslo"),
    ]
    assert list_needed_triples(EXAMPLE) == [("Leo", "friend", "Mia"), ("Mia", "city", "Oslo")]
    assert list_told_triples(EXAMPLE) == [*list_needed_triples(EXAMPLE), ("Mia", "job", "pilot")]


def test_a_description_stands_before_all_else():
    assert split_description(" <describe> a </describe><think>") == ("a", "<think>")
    assert split_description("so <describe>a</describe>")[0] is None
    assert split_description("<describe>a")[0] is None


def test_what_is_needed_is_in_the_prompt_and_demonstrations_are_of_every_kind():
    world, rng, right = DescribedFacts(), random.Random(0), []
    for example in world.examples("train", 300, 0, "hard"):
        assert set(list_needed_triples(example)) <= set(list_told_triples(example))
        right.append(world.rewards["correct"].function(world.demonstration(example, rng), example))
    assert 0.45 < sum(right) / 300 < 0.7
    with pytest.raises(ValidationError, match="choose the world graph"):
        DescribedFacts({"in_context": False})
