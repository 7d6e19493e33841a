"""The world ``verdicts``: what each generator gets wrong, pairs in both orders, seen and unseen questions, and what is measured together."""

import itertools
import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.trainers.worlds.test_contract import CONTRACT
from trainers.attempt.cold_start import find_cold_start_task
from trainers.contract.pair_judgements import FIRST, PLACES, SECOND
from trainers.tasks.base import Example, digest_example
from trainers.worlds.verdicts import (
    QUESTIONS,
    TIERS,
    Verdicts,
    list_questions,
    make_gross_mistake,
    make_subtle_mistake,
    order_pair,
    work_out,
)

BOTH = Verdicts()
OF = {name: Verdicts({"generator": name}, 3) for name in (*TIERS, "continual")}
HELD_OUT = BOTH.examples("heldout", 200, 0, "easy")


@pytest.mark.parametrize("keeps", CONTRACT)
@pytest.mark.parametrize("world", OF.values(), ids=OF)
def test_it_keeps_what_every_world_keeps_with_one_generator_too(keeps, world):
    keeps(world)


def test_a_pair_in_both_orders():
    data = {"start": 7, "changes": [3, -2], "tier": "strong", "question": "seen", "right": "7+3=10 10-2=8", "wrong": "7+3=11 11-2=9"}
    first = order_pair(Example([], FIRST, data), FIRST)
    second = order_pair(first, SECOND)
    assert first.prompt[0].content == "7+3-2?\nA: 7+3=10 10-2=8\nB: 7+3=11 11-2=9\nA or B?"
    assert second.prompt[0].content == "7+3-2?\nA: 7+3=11 11-2=9\nB: 7+3=10 10-2=8\nA or B?"
    assert BOTH.gold(second) == "<think>7+3=10 10-2=8</think><answer>B</answer>"


@given(st.integers(3, 15), st.lists(st.integers(1, 5), min_size=2, max_size=4), st.integers(0, 1000))
def test_a_weak_generator_misses_by_far_and_a_strong_one_goes_on_from_a_slip(start, changes, seed):
    right, rng = work_out(start, changes), random.Random(seed)
    gross, subtle = make_gross_mistake(start, changes, rng), make_subtle_mistake(start, changes, rng)
    assert gross != right
    assert gross == right[:-1] or (gross[:-1] == right[:-1] and abs(result(gross) - result(right)) >= 3)
    assert subtle != right
    assert len(subtle) == len(right)
    wrong = [place for place, line in enumerate(subtle) if eval_left(line) != int(line.partition("=")[2])]  # slips; none where a sign is wrong
    assert len(wrong) <= 1
    assert all(int(line.partition("=")[2]) >= 0 for line in subtle)
    for one, other in itertools.pairwise(subtle):
        assert other.startswith(one.partition("=")[2])  # it goes on from what it wrote


def result(lines):
    return int(lines[-1].partition("=")[2])


def eval_left(line):
    left = line.partition("=")[0]
    sign = max(left.find("+"), left.find("-"))
    return int(left[:sign]) + int(left[sign:])


def test_held_out_pairs_stand_there_in_both_orders_and_are_of_both_generators_on_seen_and_unseen_questions():
    assert [example.reference for example in HELD_OUT[:4]] == [*PLACES, *PLACES]
    assert all(one.data == other.data for one, other in zip(HELD_OUT[::2], HELD_OUT[1::2], strict=True))
    assert min(Counter((one.data["tier"], one.data["question"]) for one in HELD_OUT).values()) > 20
    assert all(world.examples("heldout", 200, 9, "easy") == HELD_OUT for world in OF.values())


@pytest.mark.parametrize("difficulty", BOTH.difficulties)
def test_training_knows_half_of_the_questions_and_no_held_out_pair(difficulty):
    assert len(set(list_questions(difficulty))) == 2 * QUESTIONS
    held = {digest_example(one) for one in BOTH.examples("heldout", 100, 0, difficulty)}
    for world in (BOTH, *OF.values()):
        for split in ("train", "pairs"):
            drawn = world.examples(split, 100, 0, difficulty)
            assert {one.data["question"] for one in drawn} == {"seen"}
            assert not held & {digest_example(one) for one in drawn}


def test_a_generator_of_its_own_and_one_after_the_other():
    assert {one.data["tier"] for one in OF["weak"].examples("train", 40, 0, "easy")} == {"weak"}
    assert [one.data["tier"] for one in OF["continual"].examples("train", 41, 0, "easy")] == ["weak"] * 21 + ["strong"] * 20
    assert 8 < Counter(one.reference for one in OF["weak"].examples("train", 40, 0, "easy"))[FIRST] < 32


def test_columns_speak_of_their_own_generator_alone():
    weak = next(one for one in HELD_OUT if one.data["tier"] == "weak")
    scores = {name: reward.function(BOTH.gold(weak), weak) for name, reward in BOTH.rewards.items()}
    assert scores == {"correct": 1, "weak": 1, "strong": None, "format": 1}


def test_what_is_measured_together():
    gold = [BOTH.gold(example) for example in HELD_OUT]
    right = BOTH.measure_together(HELD_OUT, gold)
    assert right == {
        **dict.fromkeys(("consistent", "consistent_weak", "consistent_strong", "consistent_seen", "consistent_unseen"), 1.0),
        "biased": 0.0,
        "says_first": 0.5,
    }
    always = BOTH.measure_together(HELD_OUT, ["<answer>A</answer>"] * len(HELD_OUT))
    assert (always["consistent"], always["biased"], always["says_first"]) == (0.0, 1.0, 1.0)
    weak_only = [text if example.data["tier"] == "weak" else "" for text, example in zip(gold, HELD_OUT, strict=True)]
    partly = BOTH.measure_together(HELD_OUT, weak_only)
    assert (partly["consistent_weak"], partly["consistent_strong"]) == (1.0, 0.0)
    assert BOTH.measure_together(HELD_OUT[:1], gold[:1])["consistent"] is None  # the other order is not there


def test_one_cold_start_serves_all_in_mixed_quality():
    starts = [find_cold_start_task(world) for world in (BOTH, *OF.values())]
    assert {world.cache_key for world in starts} == {"verdicts"}
    rng = random.Random(0)
    told = [(one, starts[1].demonstration(one, rng)) for one in starts[1].draw_demonstrations(400, 0, "easy")]
    right = sum(BOTH.rewards["correct"].function(text, one) for one, text in told) / len(told)
    assert 0.6 < right < 0.8
    assert all(OF["weak"].demonstration(one, rng) == BOTH.gold(one) for one, _ in told[:20])
