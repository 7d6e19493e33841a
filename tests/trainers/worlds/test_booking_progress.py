"""The world ``booking`` turn by turn: what a turn may say, and what it is scored by."""

import random

import pytest

from tests.trainers.worlds.test_contract import CONTRACT
from trainers.worlds.booking import Booking, tell_user_turn
from trainers.worlds.booking_progress import ProgressTurn, book_so_far, build_turn_example, list_gold_contents, parse_progress_turn, tell_booking

WORLD = Booking({"progress": True})


@pytest.mark.parametrize(
    ("text", "turn"),
    [
        ("<progress>a</progress><call>b c</call>", ProgressTurn("a", "call", "b c")),
        (" <progress></progress> <answer>x</answer> ", ProgressTurn("", "answer", "x")),
        *((text, None) for text in ("", "<call>b</call>", "<progress>a<call>b</call>", "<progress>a</progress>", "<progress>a</progress><call>b")),
        *(
            (text, None)
            for text in ("<progress>a</progress><call></call></call>", "<progress><x></progress><call>b</call>", "x<progress></progress>")
        ),
    ],
)
def test_a_turn_is_a_progress_and_then_a_call_or_an_answer(text: str, turn: ProgressTurn | None) -> None:
    assert parse_progress_turn(text) == turn


def test_what_a_turn_earns() -> None:
    script = [["city", "Rome", "I want a room in Rome."], ["nights", "4", "For 4 nights."], ["city", "Oslo", "No, in Oslo."]]
    conversation = WORLD.examples("train", 1, 0, "easy")[0]
    conversation.data.update({"script": script, "wanted": {"city": "Oslo", "nights": "4"}})
    example = build_turn_example(conversation, 1, tell_user_turn(conversation, 1), "city Rome")
    assert example.prompt[0].content == "Done: city Rome. For 4 nights."
    assert list_gold_contents(conversation) == ["city Rome", "nights 4", "city Oslo", "Oslo 4"]
    texts = [
        "<progress>city Rome nights 4</progress><call>nights 4</call>",
        "<progress>nights 4</progress><call>nights 4</call>",
        "<progress>city Rome nights 4</progress><call>nights 5</call>",
        "<progress>city Rome nights 4</progress><answer>nights 4</answer>",
    ]
    scores = [tuple(reward.function(text, example) for reward in WORLD.rewards.values()) for text in texts]
    assert scores == [(1, 1, 1), (1, 0, 1), (0, 1, 1), (0, 0, 0)]
    last = build_turn_example(conversation, 3, tell_user_turn(conversation, 3), "city Oslo nights 4")
    assert last.prompt[0].content.endswith("That is all.")
    assert WORLD.gold(last) == "<progress>city Oslo nights 4</progress><answer>Oslo 4</answer>"


def test_a_change_replaces_what_was_booked() -> None:
    for example in WORLD.examples("train", 20, 0, "hard"):
        booked = book_so_far(example, len(example.data["script"]))
        assert booked == example.data["wanted"]
        assert tell_booking({}) == "nothing"
        assert example.data["done"] == tell_booking(book_so_far(example, example.data["turn"]))


def test_half_of_the_demonstrations_are_imperfect() -> None:
    rng, right = random.Random(0), 0
    for example in (examples := WORLD.examples("train", 200, 0, "medium")):
        text = "".join(said.text for said in WORLD.turns(example, rng))
        right += all(reward.function(text, example) == 1 for reward in WORLD.rewards.values())
    assert 0.5 < right / len(examples) < 0.75


def test_it_keeps_the_contract_with_words_of_its_own() -> None:
    for check in CONTRACT:
        check(Booking({"progress": True}))
    assert "progress" in WORLD.tags
    assert "progress" not in Booking().tags
    assert WORLD.family != Booking().family
