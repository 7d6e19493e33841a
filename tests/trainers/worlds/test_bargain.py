"""The world ``bargain``: what a deal is worth, what a rule accepts, and two seats that take turns."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainers.contract.events import Message
from trainers.tasks.base import Example
from trainers.worlds.bargain import PARTNER, Bargain, find_best, parse_offer, value_goods
from trainers.worlds.base import POLICY, State, Step, replay_episode

DATA = {"goods": ["apples", "figs"], "count": 4, "worth": {POLICY: [2, 2], PARTNER: [3, 1]}, "opening": None}
EXAMPLE = Example([Message("user", "4 apples, 4 figs.")], "0 4", DATA)
WANT = "<information>they want 4 0</information>"


@pytest.mark.parametrize(
    ("text", "scores"),
    [
        ("<offer>0 4</offer>", (1, 1, 1, 1)),
        (f"<offer>4 0</offer>{WANT}<offer>0 4</offer>", (1, 1, 1, 1)),
        ("<offer>2 2</offer>", (0, 1, 0.8, 1)),  # 8 of mine and 8 of theirs; the best are 8 and 12
        ("<offer>1 2</offer>", (0, 0.75, 0.85, 1)),
        (f"<offer>4 4</offer>{WANT}" * 3 + "<offer>4 4</offer>", (0, 0, 0, 1)),
        (f"<offer>4 0</offer>{WANT}<offer>5 0</offer>", (0, 0, 0, 0)),
        ("<offer>4 0</offer><information>they want 0 4</information><offer>4 0</offer>", (0, 0, 0, 0)),
        ("<offer>4</offer>", (0, 0, 0, 0)),
    ],
)
def test_what_a_bargain_earns(text: str, scores: tuple[float, ...]) -> None:
    assert tuple(reward.function(text, EXAMPLE) for reward in Bargain().rewards.values()) == pytest.approx(scores)


@pytest.mark.parametrize("text", ["", "4", "4  0", "4 0 ", "-1 4", "٣ 1", "5 0", "1 2 3", "44 0", "a b"])
def test_what_is_no_offer(text: str) -> None:
    assert parse_offer(text, 4) is None


@given(st.integers(0, 10_000), st.sampled_from(["easy", "medium", "hard"]))
def test_no_deal_is_worth_more_than_the_best_and_the_rule_takes_it(seed: int, difficulty: str) -> None:
    world = Bargain()
    example = world.example(random.Random(seed), difficulty)
    data, count = example.data, example.data["count"]

    def value(mine: list[int]) -> int:
        return value_goods(data, POLICY, mine) + value_goods(data, PARTNER, [count - one for one in mine])

    best = find_best(data)[POLICY]
    assert all(value([one, other]) <= value(best) for one in range(count + 1) for other in range(count + 1))
    assert value([count // 2] * 2) < value(best)  # there is something to be found
    replay = replay_episode(world, example, world.gold(example))
    assert replay.state["deal"] == find_best(data)


def play(world: Bargain, example: Example, moves: list[tuple[str, str]]) -> tuple[State, list[Step]]:
    state, steps = world.begin(example), list[Step]()
    for seat, offer in moves:
        steps.append(world.step(example, state, seat, f"<offer>{offer}</offer>", random.Random(0)))
        state = steps[-1].state
    return state, steps


def test_two_seats_hand_every_offer_over_until_one_leaves_what_the_other_asked_for() -> None:
    world = Bargain({"partner": "seat", "scale": 10})
    state, steps = play(world, EXAMPLE, [(POLICY, "4 0"), (PARTNER, "4 0"), (POLICY, "0 4")])
    assert [(step.to, step.done) for step in steps] == [(PARTNER, False), (POLICY, False), ("", True)]
    assert [step.text for step in steps] == [WANT, WANT, ""]
    assert state["deal"] == {POLICY: [0, 4], PARTNER: [4, 0]}
    outcome = world.outcome(EXAMPLE, state)
    assert (outcome[POLICY]["own"], outcome[PARTNER]["own"]) == (1, 10)
    assert outcome[POLICY]["joint"] == outcome[PARTNER]["joint"] == 1


def test_a_seat_sees_its_own_worths_and_what_the_other_asked_for() -> None:
    world = Bargain({"partner": "seat"})
    begin = world.begin(EXAMPLE)
    assert world.view(EXAMPLE, begin, POLICY)[0].content == "4 apples, 4 figs. Worth to you: apples 2, figs 2."
    after = world.step(EXAMPLE, begin, POLICY, "<offer>4 0</offer>", random.Random(0)).state
    assert world.view(EXAMPLE, after, PARTNER)[0].content == "4 apples, 4 figs. Worth to you: apples 3, figs 1. They want 4 0."


def test_who_moves_out_of_turn_ends_the_bargain() -> None:
    world = Bargain({"partner": "seat"})
    state, steps = play(world, EXAMPLE, [(POLICY, "4 0"), (POLICY, "0 4")])
    assert (steps[-1].done, state["deal"], world.outcome(EXAMPLE, state)[POLICY]["format"]) == (True, None, 0)
    state, steps = play(world, EXAMPLE, [(POLICY, "4 4"), (PARTNER, "4 4")] * 4)
    assert (steps[-1].done, state["deal"]) == (True, None)
    assert not any(step.done for step in steps[:-1])


def test_a_partner_that_has_opened_is_in_the_prompt_and_can_be_taken_at_its_word() -> None:
    world = Bargain({"opened": 1})
    for example in world.examples("train", 20, 0, "easy"):
        asked = example.data["opening"]
        assert example.prompt[0].content.endswith(f" They want {asked[0]} {asked[1]}.")
        count = example.data["count"]
        step = world.step(example, world.begin(example), POLICY, f"<offer>{count - asked[0]} {count - asked[1]}</offer>", random.Random(0))
        assert step.state["deal"][PARTNER] == asked


def test_demonstrations_are_of_all_kinds() -> None:
    world, rng, correct, deals = Bargain(), random.Random(0), 0, 0
    for example in world.examples("train", 200, 0, "medium"):
        state = replay_episode(world, example, world.demonstration(example, rng)).state
        deals += state["deal"] is not None
        correct += world.outcome(example, state)[POLICY]["correct"] == 1
    assert 40 < correct < 100 < deals < 180
