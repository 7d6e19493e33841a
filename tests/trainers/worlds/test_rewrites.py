"""The world ``rewrites``: shortest ways, dead ends, and problems that a seat writes."""

import hashlib
import random
from collections.abc import Callable

import pytest

from tests.trainers.worlds.test_contract import CONTRACT
from trainers.worlds.rewrites import Rewrites, find_way

WORLD = Rewrites()
SHORTEST = "<move>*2</move><information>8 to 11</information><move>+3</move>"
STUCK = "<information>dead end</information><back>1</back><information>8 to 11</information><move>+3</move>"


@pytest.mark.parametrize(("start", "goal", "most", "way"), [(4, 11, 3, ["*2", "+3"]), (1, 1, 0, []), (60, 61, 2, None), (5, 4, 1, ["-1"])])
def test_the_shortest_way(start: int, goal: int, most: int, way: list[str] | None) -> None:
    assert find_way(start, goal, most) == way


@pytest.mark.parametrize(
    ("question", "text", "scores"),
    [
        ("From 4 to 11 in 3 moves.", "<move>*2</move><information>8 to 11</information><move>+3</move>", (1, 1, 1)),
        ("From 5 to 4 in 3 moves.", "<move>+3</move><information>8 to 4</information><move>-1</move>", (0, 0, 1)),
        (
            "From 5 to 10 in 3 moves.",
            "<move>-1</move><information>4 to 10</information><move>+3</move><information>7 to 10</information><move>+3</move>",
            (1, 0, 1),
        ),
        ("From 60 to 59 in 2 moves.", "<move>*2</move>", (0, 0, 1)),  # 120: a dead end
        ("From 4 to 11 in 3 moves.", "<move>*2</move><information>11 to 11</information><move>+3</move>", (0, 0, 0)),
        ("From 4 to 11 in 3 moves.", "<move>**</move>", (0, 0, 0)),
    ],
)
def test_what_a_path_earns(question: str, text: str, scores: tuple[int, ...]) -> None:
    example = WORLD.read(question)
    assert example is not None
    assert tuple(reward.function(text, example) for reward in WORLD.rewards.values()) == scores


def test_it_reads_what_it_asks_and_no_problem_without_a_way() -> None:
    for example in WORLD.examples("train", 30, 0, "hard"):
        assert WORLD.read(example.prompt[0].content) == example
    assert WORLD.read("From 60 to 99 in 1 moves.") is None
    assert WORLD.read("From 4 to 4 in 1 moves.") is None


def test_no_episode_is_longer_than_its_moves() -> None:
    world = Rewrites({"spare": 3})
    assert max(example.data["moves"] for example in world.examples("train", 50, 0, "hard")) <= world.max_turns


UNDO = Rewrites({"undo": True})


@pytest.mark.parametrize("promise", CONTRACT, ids=lambda promise: promise.__name__)
def test_the_contract_with_going_back(promise: Callable[[Rewrites], None]) -> None:
    promise(UNDO)


@pytest.mark.parametrize(
    ("text", "scores"),
    [
        ("<move>-1</move><information>3 to 11</information><back>0</back><information>4 to 11</information>" + SHORTEST, (1, 0, 1)),
        (SHORTEST, (1, 1, 1)),
        ("<move>*2</move><information>8 to 11</information><move>-1</move><information>7 to 11</information><move>-1</move>" + STUCK, (1, 0, 1)),
        ("<back>0</back>", (0, 0, 0)),  # nothing to go back from
        ("<move>-1</move><information>3 to 11</information><back>1</back>", (0, 0, 0)),
    ],
)
def test_what_a_path_earns_that_goes_back(text: str, scores: tuple[int, ...]) -> None:
    example = UNDO.read("From 4 to 11 in 3 moves.")
    assert example is not None
    assert tuple(reward.function(text, example) for reward in UNDO.rewards.values()) == scores


def test_an_episode_that_goes_back_for_ever_ends() -> None:
    example = UNDO.read("From 4 to 11 in 3 moves.")
    assert example is not None
    state, turns, done = UNDO.begin(example), 0, False
    while not done:
        step = UNDO.step(example, state, "policy", "<back>0</back>" if turns % 2 else "<move>-1</move>", random.Random(0))
        state, done, turns = step.state, step.done, turns + 1
    assert turns == UNDO.max_turns
    assert UNDO.outcome(example, state)["policy"]["correct"] == 0


def test_half_of_the_right_demonstrations_go_back() -> None:
    rng, backs, right = random.Random(0), 0, 0
    for example in UNDO.examples("train", 200, 0, "medium"):
        text = UNDO.demonstration(example, rng)
        if UNDO.rewards["correct"].function(text, example):
            right += 1
            backs += "<back>" in text
    assert 110 <= right <= 170
    assert 0.3 <= backs / right <= 0.7


def test_without_the_option_nothing_is_other_than_it_was() -> None:
    assert (Rewrites({"undo": False}).family, WORLD.tags) == ("rewrites", ("think", "answer", "information", "move"))
    assert "back" in UNDO.tags
    assert UNDO.family != WORLD.family
    rng = random.Random(7)
    told = "".join(WORLD.demonstration(example, rng) for example in WORLD.examples("train", 50, 0, "hard"))
    assert hashlib.sha256(told.encode()).hexdigest()[:16] == "10f2297abf139daf"
