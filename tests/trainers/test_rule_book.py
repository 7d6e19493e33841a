"""The rule book: which clauses a verdict stands on, and how well a text cites them."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainers.contract.rule_book import (
    ALLOWED,
    BOOK,
    REFUSED,
    ParcelCase,
    compute_citation_f1,
    draw_case,
    find_cited_clauses,
    judge_case,
    list_standing_clauses,
    read_case,
    write_clause_steps,
)

FINE = ParcelCase(5, 30, "Monday", "books", 10, 5)


@pytest.mark.parametrize(
    ("changes", "verdict", "trace"),
    [
        ({}, ALLOWED, "no clause applies"),
        ({"weight": 21}, REFUSED, "c1: 21 kg"),
        ({"weight": 20}, ALLOWED, "no clause applies"),
        ({"weight": 21, "papers": ("permit",)}, ALLOWED, "c1: 21 kg; c7: permit"),
        ({"papers": ("permit",)}, ALLOWED, "no clause applies"),
        ({"age": 17, "papers": ("permit",)}, REFUSED, "c2: sender 17"),
        ({"day": "Sunday", "weight": 21, "papers": ("permit",)}, REFUSED, "c1: 21 kg; c7: permit; c3: Sunday"),
        ({"contents": "liquid", "papers": ("seal",)}, ALLOWED, "c4: liquid; c9: seal"),
        ({"worth": 51, "papers": ("receipt",)}, ALLOWED, "c5: worth 51; c10: receipt"),
        ({"contents": "food", "distance": 31}, REFUSED, "c6: food, 31 km"),
        ({"distance": 31}, ALLOWED, "no clause applies"),
    ],
)
def test_verdicts_and_the_clauses_they_stand_on(changes, verdict, trace):
    case = ParcelCase(**{**FINE.__dict__, **changes})
    assert judge_case(case) == verdict
    assert write_clause_steps(case, list_standing_clauses(case)) == trace


def test_the_book_has_ten_clauses_and_each_decides_some_case():
    cases = [draw_case(random.Random(seed)) for seed in range(400)]
    assert [clause.number for clause in BOOK] == list(range(1, 11))
    assert {clause.number for case in cases for clause in list_standing_clauses(case)} == set(range(1, 11))
    assert 0.3 < sum(judge_case(case) == REFUSED for case in cases) / 400 < 0.9


@given(st.integers(0, 1000))
def test_a_case_is_read_from_its_text(seed):
    case = draw_case(random.Random(seed))
    assert read_case(f"Rules first.\n{FINE.text}\n{case.text}") == case
    assert find_cited_clauses(write_clause_steps(case, list_standing_clauses(case))) == {clause.number for clause in list_standing_clauses(case)}


def test_a_text_without_a_case_has_none():
    assert read_case("21 kg, sender") is None
    assert read_case("9" * 10_000) is None


@pytest.mark.parametrize(
    ("cited", "standing", "expected"), [({502, 506}, {506, 512}, 0.5), (set(), set(), 1), ({1}, set(), 0), (set(), {1}, 0), ({1, 2}, {1, 2}, 1)]
)
def test_citation_f1(cited, standing, expected):
    assert compute_citation_f1(cited, standing) == expected
