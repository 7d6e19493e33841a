"""VALUEFLOW: anchors on their scale, a planted property recovered, the reward, and a policy as judge in both orders."""

import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from tests.trainers.methods.batches import rollout_batch
from trainers.contract.pair_judgements import FIRST, SECOND
from trainers.maths.intensity import compute_rank_correlation, estimate_intensity
from trainers.methods.group.valueflow import Config, ValueFlow, ask_both_orders, space_anchors
from trainers.texts.properties import PROPERTIES

DIGITS = {"measured": "digits", "lowest": 2, "highest": 18}
TEXTS = ["1", "12345", "1234567890", "12345678901234567890"]


def shape(texts=TEXTS, rewards=(1.0, 0.0, 1.0, 0.0), **config):
    method = ValueFlow(Config(**DIGITS | config))
    batch = rollout_batch(list(rewards), 2, texts=list(texts), ends=[[1, 2, 3]] * len(texts))
    return method.rewards(batch, batch.reward), method.collect(), method


@given(st.integers(0, 50), st.integers(1, 200), st.integers(2, 30))
def test_anchors_are_evenly_spaced_on_their_scale(lowest, size, count):
    amounts, intensities = space_anchors(lowest, lowest + size, count)
    assert (amounts[0], amounts[-1]) == (lowest, lowest + size)
    assert (intensities[0], intensities[-1]) == (-10, 10)
    assert amounts == sorted(set(amounts))
    assert all(one < other for one, other in itertools.pairwise(intensities))


@pytest.mark.parametrize("name", PROPERTIES)
def test_a_planted_property_is_recovered(name):
    method = ValueFlow(Config(measured=name, lowest=1, highest=30, anchors=12))
    planted = [0, 3, 4, 8, 13, 14, 21, 27, 40]
    found = estimate_intensity(torch.tensor(method.intensities), method.compare([PROPERTIES[name].write(amount) for amount in planted]))
    assert compute_rank_correlation(found, torch.tensor(planted)) > 0.95
    assert found[0] < -10 < 10 < found[-1]


def test_the_reward_falls_by_the_distance_to_the_target():
    shaped, logged, method = shape(target=0.0, weight=0.1)
    found = estimate_intensity(torch.tensor(method.intensities), method.compare(TEXTS))
    assert found[2].item() == pytest.approx(0.0, abs=1e-4)  # ten digits are the middle anchor
    assert torch.allclose(shaped, torch.tensor([1.0, 0, 1, 0]) - 0.1 * found.abs())
    assert shaped[2] == pytest.approx(1.0)
    assert logged["distance"] == pytest.approx(found.abs().mean().item())
    assert logged["rank_correlation"] == pytest.approx(1.0)
    assert logged["beyond"] == 0.5  # one digit, and twenty


def test_without_weight_it_only_measures():
    shaped, logged, _ = shape(weight=0.0)
    assert shaped.tolist() == [1, 0, 1, 0]
    assert logged["intensity"]


def test_a_judge_is_asked_in_both_orders_and_what_it_contradicts_is_a_tie():
    asked = []

    def count_or_first(questions):
        asked.extend(questions)
        first = [question.split("\nA: ")[1].split("\nB: ")[0] for question in questions]
        second = [question.split("\nB: ")[1].split("\n")[0] for question in questions]
        return [FIRST if abs(len(one) - len(other)) <= 1 or len(one) > len(other) else SECOND for one, other in zip(first, second, strict=True)]

    outcomes = ask_both_orders(["xxxx", "x"], ["x", "xxx", "xxxxxxx"], "Which text is longer?", count_or_first)
    assert outcomes.tolist() == [[1, 0.5, 0], [0.5, 0, 0]]
    assert len(asked) == len(set(asked)) == 11  # two equal texts are one question
    assert ask_both_orders(["x"], ["xx"], "?", lambda questions: [None] * len(questions)).tolist() == [[0.5]]


def test_the_anchors_must_have_a_range():
    with pytest.raises(ValidationError, match="anchors have no range"):
        Config(lowest=5, highest=5)


@pytest.mark.training
def test_two_real_steps(two_steps, written_answers):
    trained = two_steps("valueflow", {"judge": "policy", "anchors": 3})
    for step in trained.steps:
        assert -14 <= step["valueflow/intensity"] <= 14
        assert step["valueflow/distance"] > 0
    assert all(rollout.contributions is not None for rollout in trained.rollouts)
