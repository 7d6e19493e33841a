"""The world ``interview`` with guesses that are rejected: when a conversation ends, and what it earns."""

import random

import pytest

from tests.trainers.worlds.test_contract import CONTRACT
from trainers.contract.events import Message
from trainers.tasks.base import Example
from trainers.worlds.base import replay_episode
from trainers.worlds.interview import Interview

WORLD = Interview({"about": "rejections"})
EXAMPLE = Example([Message("user", "q")], "cold", {"complaint": "headache", "possible": ["flu", "stress", "migraine", "cold"]})


@pytest.mark.parametrize(
    ("guesses", "scores"),
    [
        (["cold"], (1, 1, 1)),
        (["flu", "stress", "cold"], (1, 1, 1)),
        (["flu", "flu", "flu", "cold"], (1, 0.5, 1)),
        (["flu"] * 5, (0, 0.2, 1)),
        (["x" * 500, "cold"], (1, 1, 1)),
    ],
)
def test_what_guesses_earn(guesses: list[str], scores: tuple[float, ...]) -> None:
    text = ""
    for guess in guesses:
        text += f"<guess>{guess}</guess>"
        text += WORLD.respond(EXAMPLE, text) or ""
    replay = replay_episode(WORLD, EXAMPLE, text)
    assert replay.done
    assert tuple(reward.function(text, EXAMPLE) for reward in WORLD.rewards.values()) == pytest.approx(scores)
    assert [turn.step.facts["rejected"] for turn in replay.turns] == [guess != "cold" for guess in guesses]


def test_demonstrations_repeat_what_was_rejected_and_stop_at_what_is_right() -> None:
    rng, repeats, found = random.Random(0), 0, 0
    for example in WORLD.draw_demonstrations(100, 0, "medium"):
        replay = replay_episode(WORLD, example, WORLD.demonstration(example, rng))
        assert replay.done
        repeats += replay.state["repeats"] > 0
        found += replay.state["found"]
    assert 20 < repeats < 80
    assert 40 < found < 95


def test_it_keeps_the_contract_with_words_of_its_own() -> None:
    for check in CONTRACT:
        check(WORLD)
    assert WORLD.family != Interview().family == Interview({"gate": True}).family
    assert Interview().config.model_dump(exclude_defaults=True) == {}
