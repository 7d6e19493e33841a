"""The world ``reader``: what is kept and what is not, old memories, and contexts that hold the memory alone."""

import random

import pytest

from trainers.contract.events import Message
from trainers.tasks.base import Example
from trainers.worlds.base import POLICY, replay_episode
from trainers.worlds.reader import Reader, find_memory

CHUNKS = ["Mia Rome, Leo Oslo.", "Mia Lima, Eva Rome."]
MOVES = [[["Mia", "Rome"], ["Leo", "Oslo"]], [["Mia", "Lima"], ["Eva", "Rome"]]]
DATA = {"question": "Where is Mia?", "chunks": CHUNKS, "moves": MOVES, "target": "Mia", "needed": ["Mia", "Lima"], "late": False}
EXAMPLE = Example([Message("user", f"Where is Mia? Part 1 of 2: {CHUNKS[0]}")], "Lima", DATA)
SECOND = f"<information>Part 2 of 2: {CHUNKS[1]}</information>"
END = "<information>That is all.</information>"


@pytest.mark.parametrize(
    ("text", "scores"),
    [
        (f"<memory>Mia Rome</memory>{SECOND}<memory>Mia Lima</memory>{END}<answer>Lima</answer>", (1, 1, 1, 1)),
        (f"<memory>Mia Rome</memory>{SECOND}<answer>Lima</answer>", (1, 0.5, 1, 1)),
        ("<answer>Rome</answer>", (0, 0, 0.5, 1)),
        (f"<memory>Leo</memory>{SECOND}<memory>Eva</memory>{END}<memory>Mia Lima</memory>{END}<answer>Lima</answer>", (1, 1, 1, 1)),
        ("<memory>Mia</memory><information>Part 2 of 2: Mia Oslo.</information><answer>Oslo</answer>", (0, 0, 0, 0)),
        ("<recall>Mia</recall><information>nothing</information><answer>Rome</answer>", (0, 0, 0.5, 1)),
        (f"<memory>Mia <x> Lima</memory>{SECOND}", (0, 0, 0, 0)),
    ],
)
def test_what_reading_earns(text: str, scores: tuple[float, ...]) -> None:
    assert tuple(reward.function(text, EXAMPLE) for reward in Reader().rewards.values()) == scores


def test_a_memory_holds_so_many_words_and_a_step_is_worth_what_it_adds() -> None:
    world = Reader({"words": 3})
    step = world.step(EXAMPLE, world.begin(EXAMPLE), POLICY, "<memory>Leo Oslo Mia Lima</memory>", random.Random(0))
    assert (step.state["memory"], step.facts["error"], step.reward) == ("Leo Oslo Mia", "the memory was cut", 0.5)
    lost = world.step(EXAMPLE, step.state, POLICY, "<memory>Eva</memory>", random.Random(0))
    assert lost.reward == -0.5
    found = world.step(EXAMPLE, lost.state, POLICY, "<recall>Mia</recall>", random.Random(0))
    assert (found.text, found.reward, found.state["read"]) == ("<information>Leo Oslo Mia</information>", 0.5, lost.state["read"])


def test_folding_asks_every_chunk_with_the_memory_alone() -> None:
    world = Reader({"fold": True})
    first = world.step(EXAMPLE, world.begin(EXAMPLE), POLICY, "<memory>Mia Rome</memory>", random.Random(0))
    assert first.fresh == [Message("user", f"Where is Mia? <memory>Mia Rome</memory> Part 2 of 2: {CHUNKS[1]}")]
    assert CHUNKS[0] not in first.fresh[0].content
    second = world.step(EXAMPLE, first.state, POLICY, "<memory>Eva</memory>", random.Random(0))
    assert second.fresh == [Message("user", "Where is Mia? <memory>Eva</memory> That is all.")]
    third = world.step(EXAMPLE, second.state, POLICY, "<recall>Mia</recall>", random.Random(0))
    assert third.fresh == [Message("user", "Where is Mia? <memory>Eva</memory> Recalled: Mia Rome. That is all.")]
    assert world.gold(EXAMPLE) == Reader().gold(EXAMPLE)  # as a text it is played in one context
    assert Reader().step(EXAMPLE, world.begin(EXAMPLE), POLICY, "<memory>Mia</memory>", random.Random(0)).fresh is None


def test_a_name_that_comes_late_is_found_in_old_memories() -> None:
    world, recalled = Reader({"late": 1, "chunks": 3}), 0
    for example in world.examples("train", 30, 0, "medium"):
        assert [("friend is" in chunk) for chunk in example.data["chunks"]] == [False, False, True]
        gold = world.gold(example)
        replay = replay_episode(world, example, gold)
        assert (replay.done, replay.state["answer"]) == (True, example.reference)
        recalled += "<recall>" in gold
    assert recalled > 10


def test_levels_and_options_say_how_much_there_is_to_read() -> None:
    for difficulty, chunks in (("easy", 2), ("medium", 3), ("hard", 3)):
        for example in Reader().examples("train", 10, 0, difficulty):
            assert len(example.data["chunks"]) == chunks
            assert ("The friend is" in example.prompt[0].content) == (difficulty == "hard")
    world = Reader({"chunks": 5, "people": 2})
    example = world.examples("train", 1, 0, "hard")[0]
    assert len(replay_episode(world, example, world.gold(example)).turns) == 6


@pytest.mark.parametrize(
    ("query", "found"),
    [("Leo", "Leo Oslo"), ("Mia", "Mia Lima"), ("Mia Rome", "Mia Rome"), ("Eva", ""), ("", ""), ("x" * 10_000, "")],
)
def test_the_memory_that_fits_best_is_recalled_the_latest_of_equals(query: str, found: str) -> None:
    assert find_memory(query, ["Mia Rome", "Leo Oslo", "Mia Lima", ""]) == found
