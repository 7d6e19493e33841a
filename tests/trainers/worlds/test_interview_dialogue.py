"""The world ``interview`` about a dialogue graph: what the user says, and what a dialogue earns."""

import random

import pytest

from tests.trainers.worlds.test_contract import CONTRACT
from trainers.contract.events import Message
from trainers.tasks.base import Example
from trainers.worlds.base import replay_episode
from trainers.worlds.interview import Interview
from trainers.worlds.interview_dialogue import GRAPH, WORDINGS, Dialogue, DialogueGraph

DATA = {
    "facts": {"need": "fares", "vehicle": "train", "class": "second"},
    "words": {"need": "travel", "vehicle": "train", "class": "economy"},
    "told": ["vehicle"],
}
EXAMPLE = Example([Message("user", "Please help me. train. Trip 5.")], "full", DATA)
NEED, CLASS = "<ask>need</ask><information>travel</information>", "<ask>class</ask><information>economy</information>"
BESIDE = "<ask>owner</ask><information>not relevant</information>"


@pytest.mark.parametrize(
    ("text", "scores"),
    [
        (f"{NEED}{CLASS}<answer>full</answer>", (1, 1, 1, 1)),
        (f"{NEED}{BESIDE}{CLASS}<answer>full</answer>", (1, 0.75, 1, 1)),
        (f"{NEED}<answer>half</answer>", (0, 1, 2 / 3, 1)),
        (f"{NEED}{NEED}{CLASS}<answer>full</answer>", (1, 0.75, 1, 1)),
        ("<answer>full</answer>", (1, 1, 1 / 3, 1)),
        (f"{NEED}full", (0, 0, 2 / 3, 0)),
        (f"{CLASS}<ask>need</ask><information>fares</information><answer>full</answer>", (0, 0, 0, 0)),  # the user's words are not his
    ],
)
def test_what_a_dialogue_earns(text: str, scores: tuple[float, ...]) -> None:
    earned = [reward.function(text, EXAMPLE) for reward in Interview({"about": "dialogue"}).rewards.values()]
    assert earned == pytest.approx(list(scores))


@pytest.mark.parametrize(("difficulty", "told"), [("easy", -1), ("medium", 1), ("hard", 0)])
def test_prompts_tell_as_many_facts_as_they_should_in_either_wording(difficulty: str, told: int) -> None:
    examples = Interview({"about": "dialogue"}).examples("train", 200, 0, difficulty)
    reworded = 0
    for example in examples:
        facts, words = example.data["facts"], example.data["words"]
        assert len(example.data["told"]) == (told if told >= 0 else len(facts) + told)
        said = set(example.prompt[0].content.replace(",", "").replace(".", "").split())
        assert said & {*WORDINGS, *WORDINGS.values()} == {words[asked] for asked in example.data["told"]}
        assert all(words[asked] in (value, WORDINGS[value]) for asked, value in facts.items())
        reworded += sum(words[asked] != value for asked, value in facts.items())
    assert 0.4 < reworded / sum(len(example.data["facts"]) for example in examples) < 0.6


def test_every_word_means_one_thing_and_every_answer_is_reached() -> None:
    values = [value for edges in GRAPH.questions.values() for value in edges]
    words = [*values, *WORDINGS.values(), *GRAPH.questions, *GRAPH.list_answers()]
    assert len(set(words)) == len(words)
    assert set(values) == set(WORDINGS)
    rng = random.Random(0)
    assert {GRAPH.draw_facts(rng)[1] for _ in range(500)} == set(GRAPH.list_answers())
    assert {len(GRAPH.draw_facts(rng)[0]) for _ in range(100)} == {3}


def test_children_are_those_of_what_was_said() -> None:
    assert GRAPH.list_children("vehicle") == ["class", "owner", "consent"]
    assert GRAPH.list_children("vehicle", {"car", "hotel"}) == ["owner"]
    assert GRAPH.list_children("vehicle", {"auto"}) == ["class", "owner", "consent"]
    assert GRAPH.list_children("vehicle", {"car", "train"}) == ["class", "owner"]
    assert GRAPH.list_children("length") == ["company"]
    assert [GRAPH.is_answered("length", said) for said in ({"long"}, {"weeks"})] == [True, False]


def test_a_circle_is_no_dialogue_graph() -> None:
    with pytest.raises(ValueError, match="back to it"):
        DialogueGraph("a", {"a": {"x": "b", "y": "end"}, "b": {"z": "a"}})


def test_demonstrations_are_of_mixed_quality() -> None:
    world, rng = Interview({"about": "dialogue"}), random.Random(0)
    scores = []
    for example in world.examples("train", 400, 0, "easy"):
        state = replay_episode(world, example, world.demonstration(example, rng)).state
        scores.append(Dialogue().score(example, state))
    right = sum(score["correct"] or 0 for score in scores) / len(scores)
    thrifty = sum(score["correct"] == score["brief"] == score["known"] == 1 for score in scores) / len(scores)
    assert 0.75 < right < 0.9
    assert 0.4 < thrifty < 0.6


def test_it_keeps_the_contract_with_words_of_its_own() -> None:
    for check in CONTRACT:
        check(Interview({"about": "dialogue"}))
    assert Interview({"about": "dialogue"}).family != Interview().family == "interview"
