"""What several answers to one prompt say: pass@n, its estimate at equal tokens, and the spread of right answers."""

import itertools
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from trainers.attempt.repeated_answers import compute_repeated_metrics
from trainers.contract.spec import Evaluation
from trainers.maths.pass_rates import compute_anti_concentration, compute_heterogeneity, estimate_pass_at, score_early_success
from trainers.policies.sampling import Completion
from trainers.tasks.base import Example, Reward, Task


class Exact(Task):
    rewards = {"correct": Reward(lambda text, example: float(text == example.reference), "", 1.0)}


def answers(text, *lengths):
    """Of each round one answer."""
    return [Completion([1], ids=[5] * (length + 1), mask=[1] * length + [0], text=text) for length in lengths]


def test_the_worked_example_of_pass_at_n():
    assert estimate_pass_at(4, 3, 10) == pytest.approx(1 - 35 / 210)
    with pytest.raises(ValueError, match="cannot be estimated"):
        estimate_pass_at(11, 3, 10)


@given(st.lists(st.booleans(), min_size=1, max_size=7), st.integers(1, 7))
def test_pass_at_n_is_the_mean_over_all_choices_of_n_answers(right, count):
    if count <= len(right):
        chosen = [any(some) for some in itertools.combinations(right, count)]
        assert estimate_pass_at(count, sum(right), len(right)) == pytest.approx(statistics.fmean(chosen))


def test_the_worked_example_of_heterogeneity_and_anti_concentration():
    right, wrong = [0.2, 0.4, 0.9, 0.5], [0.0] * 4
    assert compute_heterogeneity(right + wrong) == pytest.approx(0.065)
    assert compute_anti_concentration(right + wrong) == pytest.approx(1 / 8)
    assert compute_heterogeneity([0.4, *wrong]) is None
    assert compute_anti_concentration(wrong) == 0


@given(st.integers(1, 100), st.integers(1, 100))
def test_an_earlier_success_scores_more(tokens, budget):
    score = score_early_success(tokens, True, budget)
    assert score_early_success(tokens, False, budget) == 0
    assert 0 <= score_early_success(tokens + 1, True, budget) <= score <= 1


def test_one_round_says_nothing_more():
    assert compute_repeated_metrics(Exact(), [Example([], "a")], [answers("a", 3)], 40) == {}


def test_at_equal_tokens_so_many_answers_count_as_the_tokens_are_enough_for():
    examples = [Example([], "a"), Example([], "b")]
    rounds = [[*answers("a", 10), *answers("b", 10)], *([*answers("x", 10), *answers("b", 10)] for _ in range(3))]
    values = compute_repeated_metrics(Exact(), examples, rounds, 40)
    assert values == {
        "heldout/pass-at-2": pytest.approx((1 / 2 + 1) / 2),  # the first prompt has one right answer of four
        "heldout/pass-at-4": 1.0,
        "heldout/pass-within-16": pytest.approx((1 / 4 + 1) / 2),
        "heldout/pass-within-32": pytest.approx((3 / 4 + 1) / 2),
        "heldout/heterogeneity": 0.0,
        "heldout/anti-concentration": pytest.approx((1 / 4 + 0) / 2),
    }


def test_what_the_tokens_are_not_enough_for_is_left_out():
    rounds = [answers("a", 100), answers("a", 60)]
    values = compute_repeated_metrics(Exact(), [Example([], "a")], rounds, 100)
    assert {name for name in values if "within" in name} == {"heldout/pass-within-128"}, "80 tokens an answer"
    assert values["heldout/heterogeneity"] is None, "an answer that takes all its tokens scores nothing"


def test_a_worlds_own_score_counts_and_not_the_text():
    made = answers("a", 3)[0]
    made.scores = {"correct": 0.0}
    assert compute_repeated_metrics(Exact(), [Example([], "a")], [[made], [made]], 40)["heldout/pass-at-2"] == 0


def test_several_answers_need_a_temperature():
    assert Evaluation().samples == 1
    with pytest.raises(ValidationError, match="temperature 0"):
        Evaluation(samples=2, temperature=0)
