"""The world ``records``: what decides, what an answer earns, and the leak that held-out prompts do not have."""

import random

import pytest

from trainers.worlds.records import (
    CLEAR,
    LEAKING,
    WEIGHTS,
    Records,
    list_deciding,
    make_record,
    measure_overlap,
    set_column,
    split_features,
    sum_weights,
)

EXAMPLE = make_record({"mood": 1, "pulse": 1, "iron": 0, "sugar": -1, "sleep": 1})


@pytest.mark.parametrize(
    ("text", "scores"),
    [
        ("<features>pulse, sugar, sleep</features><answer>no</answer>", (1, 1, 1)),
        ("<features>sleep, pulse, pulse</features><answer>no</answer>", (1, 2 / 3, 1)),
        ("<features>mood, pulse</features><answer>yes</answer>", (0, 0.25, 1)),
        ("<features></features><answer>no</answer>", (1, 0, 1)),
        ("<features>age</features><answer>no</answer>", (0, 0, 0)),
        ("<answer>no</answer>", (0, 0, 0)),
        ("<features>pulse</features>no", (0, 1 / 3, 0)),
    ],
)
def test_what_an_answer_earns(text, scores):
    assert [reward.function(text, EXAMPLE) for reward in Records().rewards.values()] == pytest.approx(scores)


def test_a_record_is_decided_by_the_weightiest_columns_off_the_middle():
    assert EXAMPLE.prompt[0].content == "mood high, pulse high, iron mid, sugar low, sleep high. Ill?"
    assert sum_weights(EXAMPLE.data["values"]) == pytest.approx(3.1 - 1.9 - 1.3)
    assert EXAMPLE.reference == "no"
    assert EXAMPLE.data["deciding"] == ["pulse", "sugar", "sleep"]
    assert list_deciding({"pulse": -1, "iron": 1, "sugar": 1, "sleep": 1}) == ["pulse", "iron", "sugar"]
    assert measure_overlap([], []) == 1
    assert split_features(" <features>iron</features> x") == (["iron"], " x")


def test_noise_decides_nothing_and_leaks_in_prompts_for_training_alone():
    plain, leaking = Records(), Records({"leak": 1.0})
    rows = {split: (plain.examples(split, 60, 0, "easy"), leaking.examples(split, 60, 0, "easy")) for split in ("train", "heldout")}
    assert rows["heldout"][0] == rows["heldout"][1]
    for before, after in zip(*rows["train"], strict=True):
        assert abs(sum_weights(before.data["values"])) >= CLEAR
        assert after == set_column(before, LEAKING, 1 if before.reference == "yes" else -1)
        assert (after.reference, after.data["deciding"], after.data["columns"]) == (before.reference, before.data["deciding"], before.data["columns"])
    half = Records({"leak": 0.5}).examples("train", 200, 0, "easy")
    agreeing = sum(example.data["values"][LEAKING] == (1 if example.reference == "yes" else -1) for example in half)
    assert 0.5 < agreeing / 200 < 0.85  # half of them, and a third of the others by chance


def test_demonstrations_are_of_every_kind():
    world, rng, right = Records(), random.Random(0), []
    for example in world.examples("train", 300, 0, "easy"):
        scores = [reward.function(world.demonstration(example, rng), example) for reward in world.rewards.values()]
        right.append(scores[0])
        assert scores[2] == 1
    assert 0.6 < sum(right) / 300 < 0.85
    assert len(WEIGHTS) == 4
