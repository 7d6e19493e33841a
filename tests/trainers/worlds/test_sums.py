"""The world ``sums``: what the calculator reads, and when a call pays."""

import pytest

from trainers.worlds.sums import Sums, calculate


@pytest.mark.parametrize(
    ("text", "result"),
    [
        *(("34*6", "204"), ("3 + 5", "8"), ("3-5", "-2"), ("0*9999", "0")),
        *((text, "error") for text in ("12345*1", "2**9", "__import__('os')", "٣+٤", "1+", "")),
    ],
)
def test_the_calculator_reads_two_numbers_and_a_sign(text: str, result: str) -> None:
    assert calculate(text) == result


@pytest.mark.parametrize(
    ("question", "text", "scores"),
    [
        ("What is 3 + 5?", "<answer>8</answer>", (1, 1, 1, 1)),
        ("What is 3 + 5?", "<calc>3+5</calc><information>8</information><answer>8</answer>", (1, 0, 1, 0)),
        ("What is 34 * 6?", "<calc>34*6</calc><information>204</information><answer>204</answer>", (1, 1, 1, 1)),
        ("What is 34 * 6?", "<answer>204</answer>", (1, 1, 1, 0)),
        ("What is 34 * 6?", "<calc>34*6</calc><information>9</information><answer>204</answer>", (0, 0, 0, 0)),
        ("What is 34 * 6?", "<answer>20</answer>", (0, 0, 1, 0)),
    ],
)
def test_a_call_pays_where_it_is_needed(question: str, text: str, scores: tuple[int, ...]) -> None:
    world = Sums()
    example = world.read(question)
    assert example is not None
    assert tuple(reward.function(text, example) for reward in world.rewards.values()) == scores


def test_it_reads_what_it_asks() -> None:
    world = Sums()
    for example in world.examples("train", 30, 0, "hard"):
        assert world.read(example.prompt[0].content) == example
    assert world.read("What is 3 - 5?") is None


def test_options_choose_the_prompts_and_break_the_calculator_for_all_alike() -> None:
    assert {one.data["sign"] for one in Sums({"large": 1}).examples("train", 20, 0, "easy")} == {"*"}
    example = Sums().examples("train", 1, 0, "easy")[0]
    assert {Sums({"faults": 1}, seed).respond(example, "<calc>1+1</calc>") for seed in range(3)} == {"<information>error</information>"}
