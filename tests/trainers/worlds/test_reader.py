"""The world ``reader``: what is kept and what is not, old memories, and contexts that hold the memory alone."""

import random

import pytest

from trainers.contract.events import Message
from trainers.tasks.base import Example
from trainers.worlds.base import POLICY, replay_episode
from trainers.worlds.reader import Reader, find_memory

CHUNKS = ["The city is Rome. The food is soup.", "The pet is owl. The city is Lima."]
LINES = [[["city", "Rome"], ["food", "soup"]], [["pet", "owl"], ["city", "Lima"]]]
DATA = {"question": "Which city?", "chunks": CHUNKS, "lines": LINES, "target": "city", "needed": ["city", "Lima"], "late": False}
EXAMPLE = Example([Message("user", f"Which city? Part 1 of 2: {CHUNKS[0]}")], "Lima", DATA)
SECOND = f"<information>Part 2 of 2: {CHUNKS[1]}</information>"
END = "<information>That is all.</information>"


@pytest.mark.parametrize(
    ("text", "scores"),
    [
        (f"<memory>city Rome</memory>{SECOND}<memory>city Lima</memory>{END}<answer>Lima</answer>", (1, 1, 1, 1)),
        (f"<memory>city Rome</memory>{SECOND}<answer>Lima</answer>", (1, 0.5, 1, 1)),
        ("<answer>Rome</answer>", (0, 0, 0.5, 1)),
        (f"<memory>food</memory>{SECOND}<memory>pet</memory>{END}<memory>city Lima</memory>{END}<answer>Lima</answer>", (1, 1, 1, 1)),
        ("<memory>city</memory><information>Part 2 of 2: The city is Oslo.</information><answer>Oslo</answer>", (0, 0, 0, 0)),
        ("<recall>city</recall><information>nothing</information><answer>Rome</answer>", (0, 0, 0.5, 1)),
        (f"<memory>city <x> Lima</memory>{SECOND}", (0, 0, 0, 0)),
    ],
)
def test_what_reading_earns(text: str, scores: tuple[float, ...]) -> None:
    assert tuple(reward.function(text, EXAMPLE) for reward in Reader().rewards.values()) == scores


def test_a_memory_holds_so_many_words_and_a_step_is_worth_what_it_adds() -> None:
    world = Reader({"words": 3})
    step = world.step(EXAMPLE, world.begin(EXAMPLE), POLICY, "<memory>food soup city Lima</memory>", random.Random(0))
    assert (step.state["memory"], step.facts["error"], step.reward) == ("food soup city", "the memory was cut", 0.5)
    lost = world.step(EXAMPLE, step.state, POLICY, "<memory>pet</memory>", random.Random(0))
    assert lost.reward == -0.5
    found = world.step(EXAMPLE, lost.state, POLICY, "<recall>city</recall>", random.Random(0))
    assert (found.text, found.reward, found.state["read"]) == ("<information>food soup city</information>", 0.5, lost.state["read"])


def test_folding_asks_every_chunk_with_the_memory_alone() -> None:
    world = Reader({"fold": True})
    first = world.step(EXAMPLE, world.begin(EXAMPLE), POLICY, "<memory>city Rome</memory>", random.Random(0))
    assert first.fresh == [Message("user", f"Which city? <memory>city Rome</memory> Part 2 of 2: {CHUNKS[1]}")]
    assert CHUNKS[0] not in first.fresh[0].content
    second = world.step(EXAMPLE, first.state, POLICY, "<memory>pet</memory>", random.Random(0))
    assert second.fresh == [Message("user", "Which city? <memory>pet</memory> That is all.")]
    third = world.step(EXAMPLE, second.state, POLICY, "<recall>city</recall>", random.Random(0))
    assert third.fresh == [Message("user", "Which city? <memory>pet</memory> Recalled: city Rome. That is all.")]
    assert world.gold(EXAMPLE) == Reader().gold(EXAMPLE)  # as a text it is played in one context
    assert Reader().step(EXAMPLE, world.begin(EXAMPLE), POLICY, "<memory>city</memory>", random.Random(0)).fresh is None


def test_a_topic_that_comes_late_is_found_in_old_memories() -> None:
    world, recalled = Reader({"late": 1, "chunks": 3}), 0
    for example in world.examples("train", 30, 0, "medium"):
        assert [("It is about" in chunk) for chunk in example.data["chunks"]] == [False, False, True]
        gold = world.gold(example)
        replay = replay_episode(world, example, gold)
        assert (replay.done, replay.state["answer"]) == (True, example.reference)
        recalled += "<recall>" in gold
    assert recalled > 10


def test_levels_and_options_say_how_much_there_is_to_read() -> None:
    for difficulty, chunks in (("easy", 2), ("medium", 3), ("hard", 3)):
        for example in Reader().examples("train", 10, 0, difficulty):
            assert len(example.data["chunks"]) == chunks
            assert ("It is about" in example.prompt[0].content) == (difficulty == "hard")
    world = Reader({"chunks": 5, "topics": 2})
    example = world.examples("train", 1, 0, "hard")[0]
    assert len(replay_episode(world, example, world.gold(example)).turns) == 6


@pytest.mark.parametrize(
    ("query", "found"),
    [("food", "food soup"), ("city", "city Lima"), ("city Rome", "city Rome"), ("pet", ""), ("", ""), ("x" * 10_000, "")],
)
def test_the_memory_that_fits_best_is_recalled_the_latest_of_equals(query: str, found: str) -> None:
    assert find_memory(query, ["city Rome", "food soup", "city Lima", ""]) == found


def test_windows_tell_each_turn_of_a_demonstration_with_the_memory_alone() -> None:
    world, told = Reader({"windows": 0.5}), {1: 0, 2: 0}
    rng, again = random.Random(0), random.Random(0)
    for example in world.examples("train", 60, 0, "medium"):
        contexts = world.draw_contexts(example, rng)
        said = world.turns(example, again)
        again.random()
        assert [one.text for _, own in contexts for one in own if one.seat] == [one.text for one in said if one.seat]
        assert contexts[0][0] == example.prompt
        told[min(2, len(contexts))] += 1
        if len(contexts) > 1:
            assert all(len(own) == 1 for _, own in contexts)
            assert contexts[1][0][0].content.startswith(example.data["question"] + " <memory>")
    assert min(told.values()) > 10


def test_without_windows_nothing_more_is_drawn() -> None:
    world, rng, other = Reader(), random.Random(3), random.Random(3)
    for example in world.examples("train", 10, 0, "easy"):
        assert world.draw_contexts(example, rng) == [(example.prompt, world.turns(example, other))]
    assert rng.random() == other.random()
    assert Reader({"windows": 0.5}).family == world.family
