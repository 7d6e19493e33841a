"""Which pairs a ranking writes: those between tiers, none inside one."""

from __future__ import annotations

from itertools import combinations
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.labelling.labels.implied_preferences import derive_preferences
from lab.labelling.labels.models import JudgementState, Verdict
from lab.labelling.labels.outcome import find_agreed_verdict, is_gold_match

RANKED = Verdict.RANKED


@st.composite
def rankings(draw: st.DrawFn) -> tuple[list[list[int]], list[int]]:
    """Tiers over 2 to 12 places, and the rollouts that stand there."""
    count = draw(st.integers(2, 12))
    places = draw(st.permutations(range(count)))
    cuts = sorted(draw(st.sets(st.integers(1, count - 1), max_size=count - 1)))
    tiers = [list(places[start:end]) for start, end in zip([0, *cuts], [*cuts, count], strict=True)]
    rollouts = draw(st.lists(st.integers(1, 10**9), min_size=count, max_size=count, unique=True))
    return tiers, rollouts


@given(rankings())
def test_pairs_are_those_between_tiers(ranking: tuple[list[list[int]], list[int]]) -> None:
    tiers, rollouts = ranking
    pairs = derive_preferences(RANKED, tiers, rollouts)
    tier_of = {rollouts[place]: number for number, tier in enumerate(tiers) for place in tier}
    assert len(pairs) == len(set(pairs)) == sum(len(upper) * len(lower) for upper, lower in combinations(tiers, 2))
    assert all(tier_of[chosen] < tier_of[rejected] for chosen, rejected in pairs)  # so none inside a tie, and never both directions
    assert set(pairs) == {(one, other) for one in rollouts for other in rollouts if tier_of[one] < tier_of[other]}


@given(rankings())
def test_pairs_are_antisymmetric_and_transitive(ranking: tuple[list[list[int]], list[int]]) -> None:
    pairs = set(derive_preferences(RANKED, *ranking))
    assert not any((rejected, chosen) in pairs for chosen, rejected in pairs)
    assert all((one, last) in pairs for one, middle in pairs for other, last in pairs if middle == other)


@pytest.mark.feature(91)
def test_five_members_with_two_ties_give_eight_pairs() -> None:
    a, b, c, d, e = rollouts = [11, 12, 13, 14, 15]
    pairs = derive_preferences(RANKED, [[0, 1], [2], [3, 4]], rollouts)
    assert pairs == [(a, c), (b, c), (a, d), (a, e), (b, d), (b, e), (c, d), (c, e)]


@pytest.mark.parametrize(
    ("verdict", "expected"),
    [("a", [(7, 8)]), ("b", [(8, 7)]), ("tie", []), ("bad", []), ("skip", []), ("first", []), ("second", []), ("good", []), ("ranked", [])],
)
def test_a_pair_gives_one_or_none(verdict: str, expected: list[tuple[int, int]]) -> None:
    assert derive_preferences(verdict, None, [7, 8]) == expected


def test_nothing_is_implied_about_answers_that_are_not_stored() -> None:
    assert derive_preferences("a", None, []) == [] == derive_preferences(RANKED, [[0], [1]], [])


def test_all_in_one_tie_implies_nothing() -> None:
    assert derive_preferences(RANKED, [[0, 1, 2]], [1, 2, 3]) == []


def said(verdict: str, tiers: list[list[int]] | None = None, state: str = JudgementState.SUBMITTED) -> SimpleNamespace:
    return SimpleNamespace(verdict=verdict, tiers=tiers, state=state)


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([], None),
        ([said("a")], "a"),
        ([said("a"), said("a")], "a"),
        ([said("a"), said("tie")], None),
        ([said("tie"), said("tie")], "tie"),
        ([said("bad"), said("tie")], None),
        ([said("a"), said("skip")], "a"),
        ([said("skip")], None),
        ([said("a"), said("b", state=JudgementState.RETURNED)], "a"),
        ([said("a"), said("b", state=JudgementState.WITHDRAWN)], "a"),
        ([said("a", state=JudgementState.ACCEPTED), said("b")], None),
        ([said(RANKED, [[0, 1], [2]]), said(RANKED, [[1, 0], [2]])], RANKED),
        ([said(RANKED, [[0, 1], [2]]), said(RANKED, [[0], [1], [2]])], None),
        ([said(RANKED, [[0], [1, 2]]), said(RANKED, [[0, 1], [2]])], None),
    ],
)
def test_people_agree_when_all_who_count_say_the_same(rows: list[SimpleNamespace], expected: str | None) -> None:
    assert find_agreed_verdict(None, rows) == expected


@given(rankings(), rankings())
def test_rankings_agree_exactly_when_they_imply_the_same_pairs(
    one: tuple[list[list[int]], list[int]], other: tuple[list[list[int]], list[int]]
) -> None:
    places = list(range(len(one[1])))
    if len(other[1]) == len(places):
        same = set(derive_preferences(RANKED, one[0], places)) == set(derive_preferences(RANKED, other[0], places))
        assert (find_agreed_verdict(None, [said(RANKED, one[0]), said(RANKED, other[0])]) is not None) == same


def test_gold_is_right_wrong_or_not_asked() -> None:
    assert is_gold_match(None, said("a")) is None
    assert is_gold_match({"verdict": "a"}, said("skip")) is None
    assert is_gold_match({"verdict": "a"}, said("a")) is True
    assert is_gold_match({"verdict": "a"}, said("tie")) is False
    assert is_gold_match({"verdict": RANKED, "tiers": [[0, 1], [2]]}, said(RANKED, [[1, 0], [2]])) is True
    assert is_gold_match({"verdict": RANKED, "tiers": [[0, 1], [2]]}, said(RANKED, [[0], [1], [2]])) is False
