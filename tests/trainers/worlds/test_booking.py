"""The world ``booking``: calls that follow the user, and a last word that holds the whole booking."""

import pytest

from trainers.contract.events import Message
from trainers.tasks.base import Example
from trainers.worlds.booking import Booking

SCRIPT = [["city", "Rome", "I want a room in Rome."], ["nights", "4", "For 4 nights."], ["city", "Oslo", "No, in Oslo."]]
EXAMPLE = Example([Message("user", SCRIPT[0][2])], "Oslo 4", {"script": SCRIPT, "wanted": {"city": "Oslo", "nights": "4"}})


def write(*calls: str, answer: str, said: tuple[str, ...] = ("For 4 nights.", "No, in Oslo.", "That is all.", "That is all.")) -> str:
    return (
        "".join(f"<call>{call}</call><information>{words}</information>" for call, words in zip(calls, said, strict=False))
        + f"<answer>{answer}</answer>"
    )


@pytest.mark.parametrize(
    ("text", "scores"),
    [
        (write("city Rome", "nights 4", "city Oslo", answer="Oslo 4"), (1, 1, 1, 1)),
        (write("city Rome", "nights 4", answer="Oslo 4"), (0, 0.5, 1, 1)),  # the last word is right, the booking is not
        (write("city Rome", "nights 4", "city Oslo", answer="Rome 4"), (0, 1, 1, 1)),
        (write("city Rome", "nights 5", "city Oslo", "nights 4", answer="Oslo 4"), (1, 1, 0.5, 1)),
        (write("town Rome", answer="Oslo 4"), (0, 0, 0, 1)),
        (write("city Rome", answer="Oslo 4", said=("That is all.",)), (0, 0, 0, 0)),
    ],
)
def test_what_a_booking_earns(text: str, scores: tuple[float, ...]) -> None:
    assert tuple(reward.function(text, EXAMPLE) for reward in Booking().rewards.values()) == scores


def test_the_share_of_users_who_change_their_mind() -> None:
    for share in (0.0, 1.0):
        examples = Booking({"changes": share}).examples("train", 20, 0, "hard")
        assert {len(example.data["script"]) - len(example.data["wanted"]) for example in examples} == {int(share)}
