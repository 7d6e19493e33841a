"""Known and unknown questions: what counts as known, equal parts, and answers that are forced."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.trainers.methods.turn_scripts import script_turns
from trainers.methods.known_split import balance_known, mark_known, measure_closed_book
from trainers.worlds.search import Search


def test_half_of_the_answers_right_is_known_and_with_0_one_is():
    assert mark_known([0.0, 0.25, 0.5, 1.0], 0.5) == [False, False, True, True]
    assert mark_known([0.0, 0.1, 1.0], 0.0) == [False, True, True]


@given(st.lists(st.booleans(), max_size=30), st.integers(0, 99))
def test_both_parts_are_equal_and_in_their_order_or_all_stays(known, seed):
    rows = list(range(len(known)))
    kept = balance_known(rows, known, random.Random(seed))
    counts = [sum(known[row] is kind for row in kept) for kind in (True, False)]
    if all(known) or not any(known):
        assert kept == rows
    else:
        assert counts[0] == counts[1] == min(sum(known), len(known) - sum(known))
    assert kept == sorted(set(kept))
    assert kept == balance_known(rows, known, random.Random(seed))


@pytest.mark.parametrize(("written", "share"), [(lambda gold, number: gold, 1.0), (lambda gold, number: "none" if number % 2 else gold, 0.5)])
def test_the_policy_is_made_to_answer_at_once(make_session, monkeypatch, written, share):
    run = make_session(Search()).run
    examples = run.task.examples("train", 2, 0, "easy")
    asked, golds = [], [example.reference for example in examples]

    def write(number, text):
        asked.append(text)
        return written(golds[number // 4], number) + "</answer>"

    script_turns(monkeypatch, write)
    assert measure_closed_book(run, examples, 4, "test") == [share, share]
    assert asked == ["<answer>"] * 8
