"""The world ``two_corpora``: which corpus knows what, and what its agents do and return."""

import random

from trainers.contract.events import Message
from trainers.tasks.base import Example
from trainers.worlds.base import replay_episode
from trainers.worlds.facts import Fact, Facts
from trainers.worlds.two_corpora import Report, TwoCorpora, count_kept, refine_evidence

FACTS = [["Eva", "friend", "Leo"], ["Leo", "boss", "Ida"], ["Ida", "city", "Rome"], ["Eva", "city", "Oslo"]]
DATA = {"facts": FACTS, "evidence": [0, 1, 2], "person": "Eva", "chain": ["friend", "boss"], "attribute": "city"}
EXAMPLE = Example([Message("user", "What is the city of the boss of the friend of Eva?")], "Rome", DATA)


def scores(world: TwoCorpora, text: str) -> dict[str, float | None]:
    return {name: reward.function(text, EXAMPLE) for name, reward in world.rewards.items()}


def test_a_flat_episode_by_hand() -> None:
    world = TwoCorpora({"hits": 1})
    gold = (
        "<local>Eva's friend</local><information>Eva's friend is Leo.</information><local>Leo's boss</local><information>Leo's boss is Ida."
        "</information><web>Ida's city</web><information>Ida's city is Rome.</information><answer>Rome</answer>"
    )
    assert world.gold(EXAMPLE) == gold
    assert scores(world, gold) == {"correct": 1, "format": 1, "evidence": 1, "both": 1}
    assert "Rome" not in str(world.respond(EXAMPLE, "<local>Ida's city</local>"))


def test_an_agent_follows_a_chain_in_one_call() -> None:
    world = TwoCorpora({"hits": 1, "agents": True})
    gold = (
        "<local>Eva's friend's boss</local><information>Ida Eva's friend is Leo. Leo's boss is Ida.</information>"
        "<web>Ida's city</web><information>Rome Ida's city is Rome.</information><answer>Rome</answer>"
    )
    assert world.gold(EXAMPLE) == gold
    assert scores(world, gold) == {"correct": 1, "format": 1, "evidence": 1, "both": 1}
    assert str(world.respond(EXAMPLE, "<web>Eva's friend</web>")).startswith("<information>nothing")
    assert str(world.respond(EXAMPLE, "<local></local>")) == "<information>nothing</information>"


def test_an_agent_searches_again_where_a_search_was_noise() -> None:
    flat, led = TwoCorpora({"junk": 0.5}), TwoCorpora({"junk": 0.5, "agents": True})
    found = {flat: 0.0, led: 0.0}
    for world in found:
        for example in world.examples("train", 150, 0, "easy"):
            person, relation = example.data["person"], example.data["chain"][0]
            replay = replay_episode(world, example, f"<local>{person}'s {relation}</local>")
            found[world] += bool(replay.state["found"]) / 150
    assert 0.4 < found[flat] < 0.65
    assert found[led] > 0.8


def test_three_of_ten_unused_sentences_stay_the_nearest_first() -> None:
    assert [count_kept(rest) for rest in (0, 1, 5, 10)] == [0, 1, 1, 3]
    corpus = Facts([Fact("Eva", "friend", "Leo"), Fact("Ida", "boss", "Max"), Fact("Leo", "boss", "Ida")])
    report = Report("Leo", [0], [0, 1, 2])
    assert refine_evidence(corpus, report, "") == [0, 1], "none is nearer than the other"
    assert refine_evidence(corpus, Report("leo's", [0], [0, 1, 2]), "") == [0, 2]
    assert refine_evidence(corpus, report, "leo's") == [0, 2]


def test_demonstrations_with_agents_and_noise_end() -> None:
    world, rng, right = TwoCorpora({"junk": 0.4, "agents": True}), random.Random(0), 0.0
    for example in world.examples("train", 200, 0, "easy"):
        text = "".join(said.text for said in world.turns(example, rng))
        assert replay_episode(world, example, text).done
        right += (world.rewards["correct"].function(text, example) or 0.0) / 200
    assert 0.3 < right < 0.55
