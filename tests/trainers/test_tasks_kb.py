"""The look-up task: what the world answers, and that only its own answers count."""

import pytest

from trainers.contract.events import Message
from trainers.tasks.base import Example
from trainers.tasks.kb import Kb

TASK = Kb()
FACTS = {"Eva friend": "Leo", "Leo city": "Paris", "Eva city": "Oslo"}
EVA = Example(
    [Message("user", "What is the city of the friend of Eva?")],
    "Paris",
    {"facts": FACTS, "hops": ["Eva friend", "Leo city"], "person": "Eva", "attribute": "city"},
)
HOP_1 = "<search>Eva friend</search><information>Leo</information>"
HOP_2 = "<search>Leo city</search><information>Paris</information>"


def score(name: str, text: str) -> float | None:
    return TASK.rewards[name].function(text, EVA)


def test_the_world_answers_the_last_search():
    assert TASK.respond(EVA, "<search>Eva friend</search>") == "<information>Leo</information>"
    assert TASK.respond(EVA, HOP_1 + "<search> Leo city </search>") == "<information>Paris</information>"


@pytest.mark.parametrize("text", ["<search>Zoe pet</search>", "<search></search>", "</search>", "<search>\ud800</search>", "Eva friend</search>"])
def test_the_world_says_none_to_what_it_does_not_know(text):
    assert TASK.respond(EVA, text) in ("<information>none</information>", "<information>Leo</information>")
    if text != "Eva friend</search>":
        assert TASK.respond(EVA, text) == "<information>none</information>"


def test_the_world_is_silent_when_nothing_was_searched():
    assert TASK.respond(EVA, "<answer>Paris</answer>") is None


@pytest.mark.parametrize(
    ("text", "correct", "form", "searches"),
    [
        (HOP_1 + HOP_2 + "<answer>Paris</answer>", 1, 1, 1),
        ("<answer>Paris</answer>", 1, 1, 0),  # a lucky guess is right, and seen to have looked nothing up
        (HOP_1 + "<answer>Paris</answer>", 1, 1, 0.5),
        (HOP_1 + HOP_1 + HOP_2 + "<answer>Paris</answer>", 1, 1, 1),
        (HOP_1 + HOP_2 + "<answer>Oslo</answer>", 0, 1, 1),
        ("<search>Eva city</search><information>Oslo</information><answer>Oslo</answer>", 0, 1, 0),
        ("<search>Eva friend</search><information>Paris</information><answer>Paris</answer>", 0, 0, 0),  # written by the policy, not the world
        (HOP_1 + "<information>Paris</information><answer>Paris</answer>", 0, 0, 0),
        (HOP_1 + HOP_2, 0, 0, 0),
        (HOP_1 + "<search>Leo city</search>", 0, 0, 0),
        (HOP_1 + HOP_2 + "<answer>Paris</answer><answer>Paris</answer>", 0, 0, 0),
        ("so " + HOP_1 + "<answer>Paris</answer>", 0, 0, 0),
        ("<answer>Paris", 0, 0, 0),
    ],
)
def test_it_scores_as_worked_out_by_hand(text, correct, form, searches):
    assert score("correct", text) == correct
    assert score("format", text) == form
    assert score("searches", text) == searches


def test_the_gold_episode_follows_every_hop_and_fits_the_turns():
    for difficulty in TASK.difficulties:
        for example in TASK.examples("train", 200, 0, difficulty):
            gold = TASK.gold(example)
            assert gold.count("<search>") == len(example.data["hops"])
            assert gold.count("<search>") + 1 <= TASK.max_turns


def test_playing_the_gold_searches_against_the_world_gives_the_gold_episode():
    for example in TASK.examples("train", 50, 0, "hard"):
        text = ""
        for key in example.data["hops"]:
            text += f"<search>{key}</search>"
            text += TASK.respond(example, text)
        assert text + f"<answer>{example.reference}</answer>" == TASK.gold(example)


def test_two_examples_with_the_same_question_have_facts_of_their_own():
    examples = TASK.examples("train", 600, 0, "easy")
    by_question: dict[str, list[Example]] = {}
    for example in examples:
        by_question.setdefault(example.prompt[0].content, []).append(example)
    repeated = [group for group in by_question.values() if len(group) > 1]
    assert repeated
    assert all(group[0].data["facts"] != group[1].data["facts"] for group in repeated)
