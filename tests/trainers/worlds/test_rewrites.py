"""The world ``rewrites``: shortest ways, dead ends, and problems that a seat writes."""

import pytest

from trainers.worlds.rewrites import Rewrites, find_way

WORLD = Rewrites()


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
