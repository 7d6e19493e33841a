"""The world ``problems``: what is a problem, what a request earns, and what one seat can read of another."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainers.worlds.problems import Problems, ask_to_solve, ask_to_write, parse_chain, write_flawed

SOLVE, WRITE = ask_to_solve(parse_chain("9 +3 *2")), ask_to_write(["add", "double"], parse_chain("9 +3 *2"))
OK, BAD = "<information>ok</information>", "<information>bad</information>"


@pytest.mark.parametrize(
    ("example", "text", "scores"),
    [
        (SOLVE, "<think>9+3=12 12*2=24</think><answer>24</answer>", (1, 1, 1)),
        (SOLVE, "<answer>21</answer>", (0, 0, 1)),
        (SOLVE, "<answer>9 +3 *2</answer>", (0, 0, 1)),
        (WRITE, f"<think>4 *2 +1</think><check>4 *2 +1</check>{OK}<answer>4 *2 +1</answer>", (1, 1, 1)),
        (WRITE, "<answer>4 *2 +1</answer>", (1, 0, 1)),
        (WRITE, f"<check>4 +1</check>{BAD}<answer>4 +1</answer>", (0, 0, 1)),
        (WRITE, f"<check>4 +1</check>{OK}<answer>4 *2 +1</answer>", (0, 0, 0)),  # it wrote the world's answer itself
        (WRITE, f"<check>1 *2 +1</check>{OK}<answer>4 *2 +1</answer>", (1, 0, 1)),  # another problem than the one that was checked
        (WRITE, "<answer>60 *2 +1</answer>", (0, 0, 1)),  # leaves the range
    ],
)
def test_what_an_episode_earns(example, text, scores):
    assert tuple(reward.function(text, example) for reward in Problems().rewards.values()) == scores


@given(st.text(max_size=40))
def test_any_text_is_a_problem_or_none(text):
    chain = parse_chain(text)
    assert chain is None or str(chain) == text


@given(st.integers(0, 5000))
def test_what_it_writes_it_can_read_and_what_is_flawed_is_not_wanted(seed):
    world, rng = Problems(), random.Random(seed)
    example = world.example(rng, rng.choice(list(world.difficulties)))
    if example.data["kind"] == "solve":
        assert world.read(example.prompt[0].content) == example
    else:
        assert world.is_wanted(example, example.reference)
        assert world.read(example.reference).reference == str(parse_chain(example.reference).result)
        flawed = write_flawed(example.reference, rng)
        assert not world.is_wanted(example, flawed) or set(example.data["skills"]) <= parse_chain(flawed).skills


def test_demonstrations_show_as_many_requests_as_problems_to_solve():
    kinds = [example.data["kind"] for example in Problems().draw_demonstrations(2000, 0, "easy")]
    assert 0.4 < kinds.count("write") / len(kinds) < 0.6


def test_what_is_asked_is_an_option_and_what_is_shown_is_not():
    for ask in ("solve", "write"):
        world = Problems({"ask": ask})
        assert {example.data["kind"] for example in world.examples("train", 20, 0, "easy")} == {ask}
        assert {example.data["kind"] for example in world.draw_demonstrations(40, 0, "easy")} == {"solve", "write"}
        assert world.cache_key == Problems().cache_key
