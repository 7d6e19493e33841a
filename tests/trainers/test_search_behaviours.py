"""The four habits of a search episode, by rules, and the arms that they select episodes for."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainers.contract.search_behaviours import (
    BEHAVIOURS,
    SearchEpisode,
    SearchTurn,
    SourceMarks,
    belongs_to_arm,
    classify_result,
    read_search_episode,
    shows_all,
    tag_behaviours,
)

USEFUL, BESIDE, ERROR = "Eva city: record Rome, rumour Oslo", "Leo pet: record cat, rumour dog", "failed"


def tags_of(turns, answer="Rome"):
    tags = tag_behaviours(SearchEpisode(tuple(SearchTurn(*turn) for turn in turns), answer))
    return tuple(tags[name] for name in BEHAVIOURS)


@pytest.mark.parametrize(
    ("turns", "answer", "expected"),
    [
        ([("Eva city", USEFUL)], "Rome", (False, True, None, None)),
        ([("Eva city", USEFUL)], "Oslo", (False, False, None, None)),
        ([("Eva city", USEFUL), ("city Eva", USEFUL)], "rome", (True, True, None, None)),
        ([("Eva city", USEFUL), ("Eva city", ERROR)], "Rome", (True, True, None, False)),
        ([("Eva city", ERROR), ("Eva city", USEFUL)], "Rome", (False, True, None, True)),
        ([("Eva city", BESIDE), ("city Eva", USEFUL)], "Rome", (False, True, True, None)),
        ([("Eva city", BESIDE), ("Eva city", USEFUL)], "Rome", (False, True, False, None)),  # the same words again are no adaptation
        ([("Eva city", BESIDE)], "Rome", (None, None, False, None)),
        ([("Eva city", "Eva city: record Rome, rumour Rome")], "Rome", (False, None, None, None)),
        ([("Eva city", USEFUL)], None, (False, False, None, None)),
        ([], "Rome", (None, None, None, None)),
        ([("Eva city", BESIDE), ("city Eva", ERROR), ("city Eva", USEFUL), ("city Eva", USEFUL)], "Rome", (True, True, True, True)),
    ],
)
def test_what_an_episode_shows(turns, answer, expected):
    assert tags_of(turns, answer) == expected


def test_an_episode_is_read_from_its_text():
    text = f"<think>hm</think><search>Eva city</search><information>{USEFUL}</information><search> Eva city</search><answer>Rome</answer>"
    assert read_search_episode(text) == SearchEpisode((SearchTurn("Eva city", USEFUL), SearchTurn("Eva city", "")), "Rome")
    assert read_search_episode("Rome") == SearchEpisode((), None)
    assert read_search_episode("<search>" * 5000).turns == ()


def test_marks_and_errors_are_those_of_the_engine():
    marks = SourceMarks(errors=("timeout",), trusted="official", doubtful="blog")
    assert classify_result(SearchTurn("a", "timeout after 3 s"), marks) == "error"
    assert classify_result(SearchTurn("a", "failed a"), marks) == "useful"
    turn = SearchTurn("Eva city", "Eva city: blog Oslo, official Rome")
    assert tag_behaviours(SearchEpisode((turn,), "Rome"), marks)["weighs"] is True


@pytest.mark.parametrize(
    ("shown", "is_right", "arms"),
    [
        ((1, 1, 1, 1), False, {"behaviours", "behaviours-wrong", "random"}),
        ((1, 0, 1, 1), True, {"right", "random"}),
        ((1, 1, 1, 1), True, {"behaviours", "behaviours-right", "right", "random"}),
        ((1, 1, None, 1), True, {"right", "random"}),
        ((0, 0, 0, 0), False, {"random"}),
        ((1, 1, 1, 1), None, {"behaviours", "random"}),
    ],
)
def test_which_arms_an_episode_belongs_to(shown, is_right, arms):
    tags = {name: None if value is None else bool(value) for name, value in zip(BEHAVIOURS, shown, strict=True)}
    every = ("behaviours", "behaviours-right", "behaviours-wrong", "right", "random")
    assert {arm for arm in every if belongs_to_arm(arm, tags, is_right)} == arms


TURNS = st.lists(st.tuples(st.sampled_from(["Eva city", "city Eva", "Eva job"]), st.sampled_from([USEFUL, BESIDE, ERROR, ""])), max_size=5)


@given(TURNS, st.sampled_from(["Rome", "Oslo", None]))
def test_a_habit_is_shown_not_shown_or_had_no_occasion(turns, answer):
    tags = dict(zip(BEHAVIOURS, tags_of(turns, answer), strict=True))
    kinds = [classify_result(SearchTurn(*turn)) for turn in turns]
    assert (tags["recovers"] is None) == ("error" not in kinds)
    assert (tags["adapts"] is None) == ("beside" not in kinds)
    assert (tags["verifies"] is None) == ("useful" not in kinds)
    assert shows_all(tags) == (set(tags.values()) == {True})
