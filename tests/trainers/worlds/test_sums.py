"""The world ``sums``: what the calculator reads, and when a call pays."""

import pytest

from tests.trainers.worlds.test_contract import CONTRACT
from trainers.worlds.base import POLICY
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


EXPERT = {"consult": 0.5}


def test_the_expert_replies_as_often_as_it_is_told_to_and_never_to_the_held_out() -> None:
    world, asked = Sums(EXPERT), "<consult>34*6</consult>"
    assert world.expert is not None
    for split, accepted, reply in (("train", 1.0, "204"), ("train", 0.0, "unavailable"), ("heldout", 1.0, "unavailable")):
        world.expert.acceptance, world.expert.turns = accepted, 4
        answers = {world.step(one, world.begin(one), POLICY, asked, world.draw_noise(one, 0)).text for one in world.examples(split, 20, 0, "easy")}
        assert answers == {f"<information>{reply}</information>"}
    world.expert.acceptance = 0.5
    texts = [world.respond(one, asked) for one in world.examples("train", 60, 0, "easy")]
    assert 15 < texts.count("<information>204</information>") < 45


def test_a_turn_too_many_ends_the_episode() -> None:
    world = Sums(EXPERT)
    assert world.expert is not None
    example = world.examples("train", 1, 0, "easy")[0]
    world.expert.acceptance, world.expert.turns = 0.0, 2
    call, asked = "<calc>1+1</calc>", "<consult>1+1</consult>"
    assert world.respond(example, call) == "<information>2</information>"
    assert world.respond(example, f"{asked}<information>unavailable</information>{call}") is None
    world.expert.turns = 3
    assert world.respond(example, f"{asked}<information>unavailable</information>{call}") == "<information>2</information>"


def test_the_world_with_an_expert_keeps_the_contract_and_has_words_of_its_own() -> None:
    for check in CONTRACT:
        check(Sums(EXPERT))
    assert Sums(EXPERT).family != Sums().family == Sums({"faults": 0.5}).family
    assert Sums().begin(Sums().examples("train", 1, 0, "easy")[0]) == {"answer": None, "errors": 0, "calls": 0}
