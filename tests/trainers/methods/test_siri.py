"""SIRI: the card's limits, the plain run without a swing, and completions that end at the limit of their step."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainers.methods.prompts.siri import SIRI, Config, compute_length_limit
from trainers.tasks import answers
from trainers.tasks.base import Example


@pytest.mark.parametrize(("step", "expected"), [(0, 16384), (80, 15184.3), (160, 12288), (320, 8192), (640, 16384)])
def test_the_cosine_of_the_card(step, expected):
    assert compute_length_limit(step, 640, 16384, 8192, "cosine") == pytest.approx(expected, abs=0.1)


@pytest.mark.parametrize(("eighths", "expected"), [(0, 16384), (2, 12288), (1.5, 15184.3), (4, 8192), (6, 12288), (7, 16384)])
def test_the_stair_cosine_of_the_card(eighths, expected):
    assert compute_length_limit(round(eighths * 80), 640, 16384, 8192, "stair-cosine") == pytest.approx(expected, abs=0.1)


def test_the_stair_changes_at_half_a_cycle():
    assert [compute_length_limit(step, 4, 40, 20, "stair") for step in range(6)] == [40, 40, 20, 20, 40, 40]


@given(st.integers(0, 5000), st.integers(2, 700), st.integers(1, 300), st.floats(0.01, 1), st.sampled_from(["cosine", "stair", "stair-cosine"]))
def test_the_limit_stays_in_its_range_and_comes_back_every_cycle(step, cycle, longest, share, schedule):
    shortest = share * longest
    found = compute_length_limit(step, cycle, longest, shortest, schedule)
    assert shortest - 1e-6 <= found <= longest + 1e-6
    assert compute_length_limit(step + cycle, cycle, longest, shortest, schedule) == pytest.approx(found)


@given(st.integers(1, 500), st.integers(1, 60), st.floats(0.01, 1), st.integers(0, 80))
def test_a_run_never_gets_more_tokens_than_it_allows_nor_none(step, most, share, longest):
    tokens = SIRI(Config(shortest=share, longest=longest)).limit_at(step, most)
    assert 1 <= tokens <= most


def test_without_a_swing_it_is_the_runs_own_limit():
    method = SIRI(Config(shortest=1.0))
    assert {method.limit_at(step, 40) for step in range(1, 100)} == {40}


def test_an_answer_beyond_the_limit_earns_nothing():
    example = Example([], "10")
    text = "<think>" + "x" * 8900 + "</think><answer>10</answer>"
    assert answers.score_correctness(text, example) == 1.0
    assert answers.score_correctness(text[:8192], example) == 0.0


@pytest.mark.training
def test_two_real_steps(two_steps):
    trained = two_steps("siri", {"schedule": "stair", "cycle": 2, "shortest": 0.25}, base="dapo", training__max_completion_length=32)
    loose, tight = trained.steps
    assert (loose["siri/limit"], tight["siri/limit"]) == (32, 8)
    assert max(rollout.length for rollout in trained.rollouts if rollout.step == 1) > 8
    in_second = [rollout for rollout in trained.rollouts if rollout.step == 2]
    assert max(rollout.length for rollout in in_second) == 8
    cut = [rollout for rollout in in_second if rollout.finish_reason == "length"]
    assert tight["siri/cut"] == len(cut) / len(in_second) > 0
    assert all(rollout.reward == 0 for rollout in cut)
