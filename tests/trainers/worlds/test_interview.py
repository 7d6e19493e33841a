"""The world ``interview``: what is not asked stays hidden, and which questions were worth asking."""

import pytest

from trainers.contract.events import Message
from trainers.tasks.base import Example
from trainers.worlds.base import POLICY, replay_episode
from trainers.worlds.interview import SYMPTOMS, Interview

FACTS = dict.fromkeys(SYMPTOMS, False) | {"fever": True}
EXAMPLE = Example([Message("user", "The patient has headache.")], "virus", {"complaint": "headache", "facts": FACTS, "told": []})


@pytest.mark.parametrize(
    ("text", "scores"),
    [
        ("<ask>fever</ask><information>yes</information><ask>cough</ask><information>no</information><answer>virus</answer>", (1, 1, 1, 1)),
        ("<ask>fever</ask><information>yes</information><ask>rash</ask><information>no</information><answer>virus</answer>", (1, 0.5, 0.5, 1)),
        ("<ask>fever</ask><information>yes</information><ask>fever</ask><information>yes</information><answer>flu</answer>", (0, 0.5, 0.5, 1)),
        ("<answer>virus</answer>", (1, 0, 0, 1)),
        ("<ask>gout</ask><information>unsure</information><answer>cold</answer>", (0, 0, 0, 1)),
        ("<ask>cough</ask><information>yes</information><answer>flu</answer>", (0, 0, 0, 0)),
    ],
)
def test_what_an_interview_earns(text: str, scores: tuple[float, ...]) -> None:
    assert tuple(reward.function(text, EXAMPLE) for reward in Interview().rewards.values()) == scores


def test_the_gate_opens_with_the_first_fact() -> None:
    world = Interview({"gate": True})
    begin, noise = world.begin(EXAMPLE), world.draw_noise(EXAMPLE, 0)
    assert world.step(EXAMPLE, begin, POLICY, "<ask>cough</ask>", noise).text == "<information>later</information>"
    after = world.step(EXAMPLE, begin, POLICY, "<ask>fever</ask>", noise).state
    assert world.step(EXAMPLE, after, POLICY, "<ask>cough</ask>", noise).text == "<information>no</information>"


def test_who_is_unsure_is_asked_again() -> None:
    world, again = Interview({"unsure": 0.3}), 0
    for example in world.examples("train", 30, 0, "medium"):
        try:
            replay = replay_episode(world, example, world.gold(example))
        except LookupError:
            continue
        assert replay.state["answer"] == example.reference
        again += len(replay.turns) > 3
    assert again > 5


def test_easy_prompts_tell_one_fact_that_decides_and_hard_ones_another() -> None:
    world = Interview()
    easy, hard = (world.examples("train", 20, 0, difficulty) for difficulty in ("easy", "hard"))
    assert {len(world.gold(example).split("<ask>")) - 1 for example in easy} == {1}
    assert {len(world.gold(example).split("<ask>")) - 1 for example in hard} == {2}
