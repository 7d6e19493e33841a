"""The world ``rooms``: moves, the door that forgives nothing, and slips that strike all alike."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainers.contract.events import Message
from trainers.tasks.base import Example
from trainers.worlds.base import POLICY, replay_episode
from trainers.worlds.room_moves import count_way, list_rewrites, parse_verdict
from trainers.worlds.rooms import Rooms, count_moves

EXAMPLE = Example([Message("user", "in 2 of 4")], "out", {"rooms": 4, "at": 2, "key": 1, "door": 3})


def write(*turns: str) -> str:
    """Moves with what the world answers: ``left>room 1``."""
    pairs = [turn.partition(">") for turn in turns]
    return "".join(f"<do>{move}</do>" + (f"<information>{said}</information>" if said else "") for move, _, said in pairs)


@pytest.mark.parametrize(
    ("text", "scores"),
    [
        (write("left>room 1", "take>key", "right>room 2", "right>room 3", "open"), (1, 1, 1, 1)),
        (write("right>room 3", "left>room 2", "left>room 1", "take>key", "right>room 2", "right>room 3", "open"), (1, 1, 5 / 7, 1)),
        (write("right>room 3", "open"), (0, 0, 0, 1)),
        (write("left>room 1", "left>room 1", "take>key", "open"), (0, 1, 0, 1)),
        (write("take>key"), (0, 0, 0, 0)),  # the world says "nothing" there: whoever writes its words himself gets no score
        (write("up"), (0, 0, 0, 0)),
        ("<answer>out</answer>", (0, 0, 0, 0)),
    ],
)
def test_only_the_key_opens_the_door(text: str, scores: tuple[float, ...]) -> None:
    assert count_moves(EXAMPLE) == 5
    assert tuple(reward.function(text, EXAMPLE) for reward in Rooms().rewards.values()) == pytest.approx(scores)


def test_a_hidden_key_shows_itself_and_no_prompt_says_where_it_is() -> None:
    world = Rooms({"hidden": True})
    assert (
        world.step(EXAMPLE, world.begin(EXAMPLE), POLICY, "<do>left</do>", world.draw_noise(EXAMPLE, 0)).text
        == "<information>room 1 key</information>"
    )
    assert all("key is in one" in one.prompt[0].content for one in world.examples("train", 20, 0, "hard"))


def test_slips_are_the_same_for_everybody_and_leave_a_way() -> None:
    world = Rooms({"slips": 0.3}, seed=5)
    slipped = 0
    for example in world.examples("train", 20, 0, "medium"):
        text = world.gold(example)
        replay = replay_episode(world, example, text)
        assert replay.state["out"]
        slipped += sum(turn.step.facts.get("error") == "slipped" for turn in replay.turns)
    assert slipped > 5


def test_a_judge_is_shown_in_a_third_of_the_demonstrations_and_nothing_else_changes() -> None:
    plain, judged = Rooms(), Rooms({"judged": True})
    assert judged.examples("train", 20, 0, "easy") == plain.examples("train", 20, 0, "easy")
    assert judged.family != plain.family == "rooms"
    shown = judged.draw_demonstrations(150, 0, "easy")
    asked = [example for example in shown if "judged" in example.data]
    assert len(asked) == 50
    assert [one for one in shown if "judged" not in one.data] == [
        one for place, one in enumerate(plain.draw_demonstrations(150, 0, "easy")) if place % 3 < 2
    ]
    rng = random.Random(0)
    verdicts = ["".join(said.text for said in judged.turns(example, rng)) for example in asked]
    assert all(parse_verdict(text) is not None for text in verdicts)
    right = sum(text == example.reference for text, example in zip(verdicts, asked, strict=True))
    assert 25 < right < 45  # demonstrations are imperfect


@given(st.integers(2, 6), st.data(), st.booleans())
def test_a_row_is_made_harder_or_easier_by_one_room(rooms: int, data: st.DataObject, harder: bool) -> None:
    places = {name: data.draw(st.integers(1, rooms)) for name in ("at", "key", "door")}
    before = {"rooms": rooms, **places}
    for after in list_rewrites(before, harder):
        assert (count_way(after) > count_way(before)) == harder
        assert count_way(after) != count_way(before)
        assert all(1 <= after[name] <= after["rooms"] for name in places)
        assert count_moves(Rooms().lay_out(after)) == count_way(after)
    if len({*places.values()}) == 1 and rooms > 2:
        assert list_rewrites(before, True)
        assert not list_rewrites(before, False)
