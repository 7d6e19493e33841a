"""Pairs judged in both orders: the card's numbers, what position bias is, and the five differences of judges over time."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainers.contract.judge_shelf_life import CONTINUAL, STRONG, WEAK, compute_judge_differences, list_judge_differences
from trainers.contract.pair_judgements import (
    FIRST,
    PLACES,
    SECOND,
    PairVerdict,
    measure_judge,
    read_verdict,
    swap_place,
    write_judge_question,
    write_verdict,
)

VERDICTS = st.lists(st.builds(PairVerdict, st.sampled_from([FIRST, SECOND, None]), st.sampled_from([FIRST, SECOND, None])), min_size=1, max_size=12)


def test_right_in_one_order_only_is_not_consistent():
    assert not PairVerdict(FIRST, FIRST).is_consistent  # A first: right, B first: wrong
    assert PairVerdict(FIRST, SECOND).is_consistent
    assert PairVerdict(SECOND, FIRST).right == (False, False)
    assert not PairVerdict(None, None).is_biased


def test_a_judge_that_always_names_one_place_is_right_half_the_time_and_never_consistent():
    for place, says_first in ((FIRST, 1.0), (SECOND, 0.0)):
        figures = measure_judge([PairVerdict(place, place)] * 5)
        assert (figures.accuracy, figures.consistent, figures.biased, figures.says_first) == (0.5, 0.0, 1.0, says_first)
    assert measure_judge([]) is None


def test_figures_of_a_mixed_bag():
    figures = measure_judge([PairVerdict(FIRST, SECOND), PairVerdict(FIRST, FIRST), PairVerdict(SECOND, FIRST), PairVerdict(None, SECOND)])
    assert (figures.pairs, figures.consistent, figures.accuracy, figures.biased) == (4, 0.25, 0.5, 0.25)
    assert figures.says_first == pytest.approx(4 / 7)
    assert figures.undecided == pytest.approx(1 / 8)


@given(VERDICTS)
def test_consistent_verdicts_are_never_more_than_right_ones(verdicts):
    figures = measure_judge(verdicts)
    assert 0 <= figures.consistent <= figures.accuracy <= 1
    assert figures.consistent + figures.biased <= 1
    assert 2 * figures.accuracy - 1 <= figures.consistent + 1e-9  # with more than half right some pairs are right twice


@given(VERDICTS)
def test_swapping_the_names_of_the_places_swaps_the_bias_alone(verdicts):
    swapped = [PairVerdict(*(place and swap_place(place) for place in (one.better_second, one.better_first))) for one in verdicts]
    before, after = measure_judge(verdicts), measure_judge(swapped)
    assert (before.consistent, before.accuracy, before.biased) == (after.consistent, after.accuracy, after.biased)
    assert before.says_first == pytest.approx(1 - after.says_first)


@pytest.mark.parametrize("place", PLACES)
def test_a_verdict_is_read_back(place):
    assert read_verdict(write_verdict(place)) == read_verdict(write_verdict(place, "3+3=6")) == place
    assert read_verdict(f"<answer>{swap_place(place)}</answer> no, <answer> {place} </answer>\n") == place


@pytest.mark.parametrize("text", ["", "A", "<answer>C</answer>", "<answer>A</answer> or B", "<answer>AB</answer>"])
def test_other_texts_are_no_verdict(text):
    assert read_verdict(text) is None


def test_the_question_shows_both_answers_in_their_places():
    assert write_judge_question("1+1?", "2", "3") == "1+1?\nA: 2\nB: 3\nA or B?"


def test_the_differences_of_the_card():
    accuracies = {(WEAK, WEAK): 0.80, (WEAK, STRONG): 0.70, (STRONG, STRONG): 0.78, (STRONG, WEAK): 0.79}
    made = compute_judge_differences(accuracies)
    expected = {
        ("FutureProof", WEAK): -0.10,
        ("RefreshAdvantage", STRONG): 0.08,
        ("BackCompat", STRONG): -0.01,
        ("CompatShift", STRONG): 0.01,
    }
    assert made == {key: pytest.approx(value) for key, value in expected.items()}


def test_a_continual_judge_has_differences_of_its_own_and_every_judge_a_question_gap():
    judges = (WEAK, STRONG, CONTINUAL)
    accuracies = {(judge, tier): place / 10 for place, judge in enumerate(judges) for tier in (WEAK, STRONG, "seen", "unseen")}
    made = compute_judge_differences(accuracies)
    assert list(made) == [(one.name, one.judge) for one in list_judge_differences(judges)]
    assert len(made) == 1 + 2 * 3 + 3
    assert made["RefreshAdvantage", CONTINUAL] == pytest.approx(0.2)
    assert made["QuestionGen", WEAK] == 0


def test_without_a_weak_judge_there_is_nothing_to_compare_with():
    assert [one.name for one in list_judge_differences([STRONG])] == ["CompatShift", "QuestionGen"]
