"""Regular expressions: what they find, page by page, and that none of them holds a page up."""

import time

import pytest

from lab.rollouts.browse import regex
from lab.rollouts.browse.pages import Count, find_neighbour_ids, read_page, stream_rollouts
from lab.rollouts.browse.regex import TooSlow
from lab.teams.accounts.models import Team
from lab.training.runs.models import Run
from tests.lab.browse.stored import ask, places
from tests.lab.supervisor.spools import make_run, rollout, started, store

SLOW = r"^(x+)(x+)(x+)\1\2\3y$"  # back references: every way to split a long text has to be tried


@pytest.fixture
def run(team: Team) -> Run:
    run = make_run(team)
    store(run, started(), *[rollout(step, 0, sample, completion=f"answer {step * 7 + sample}\nend") for step in range(1, 21) for sample in range(6)])
    return run


@pytest.mark.feature(50)
def test_a_pattern_is_looked_for_in_the_selection(run: Run, team: Team) -> None:
    assert places(team, r"run=1&re=^answer 1\d$") == []  # ^ and $ are the ends of the text
    assert places(team, r"re=^answer 1\d\n") == [(1, 0, 3), (1, 0, 4), (1, 0, 5), (2, 0, 0), (2, 0, 1), (2, 0, 2), (2, 0, 3), (2, 0, 4), (2, 0, 5)]
    assert places(team, r"re=(?i)ANSWER 11\n&f=sample:eq:4") == [(1, 0, 4)]
    assert places(team, r"re=ANSWER") == []


def test_pages_of_a_pattern_follow_each_other(run: Run, team: Team, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(regex, "FEWEST", 5)
    monkeypatch.setattr(regex, "MOST", 9)
    for scope in ("run=1", "sort=length", ""):
        found, cursor, pages = [], "", []
        while True:
            page = read_page(team, ask(rf"{scope}&re=answer \d*5\n", cursor), 4)
            found += page.rows
            pages.append([row.pk for row in page.rows])
            if not (cursor := page.next):
                break
        assert len(found) == 12
        assert page.previous
        back = read_page(team, ask(rf"{scope}&re=answer \d*5\n", page.previous), 4)
        assert [row.pk for row in back.rows] == pages[-2]
    assert [row.pk for row in stream_rollouts(team, ask(r"re=answer \d*5\n"))] == [row.pk for row in found]
    assert find_neighbour_ids(team, ask(r"re=answer \d*5\n"), found[3]) == (found[2].pk, found[4].pk)


def test_what_was_examined_is_counted(run: Run, team: Team) -> None:
    page = read_page(team, ask(r"run=1&re=answer 7\n"))
    assert (len(page.rows), page.count) == (1, Count(1, True))
    assert page.examined is not None
    assert (page.examined.count, page.examined.of, page.examined.timed_out, page.examined.cursor) == (120, 120, False, "")


@pytest.mark.parametrize(
    ("pattern", "reason"), [("(", "parentheses () not balanced"), ("[a", "brackets [] not balanced"), ("a**", "quantifier operand invalid")]
)
def test_an_invalid_pattern_is_a_problem_with_the_reason_and_the_rest_is_shown(run: Run, team: Team, pattern: str, reason: str) -> None:
    page = read_page(team, ask(f"run=1&f=step:eq:2&re={pattern}"))
    assert len(page.rows) == 6
    assert page.problems[0].field == "re"
    assert page.problems[0].message == f"the regular expression is invalid: {reason}"


@pytest.fixture
def trap(team: Team, run: Run, monkeypatch: pytest.MonkeyPatch) -> Run:
    """One completion on which SLOW never ends stands among others."""
    store(run, rollout(21, 0, 0, completion="xxxxxxy"), rollout(22, 0, 0, completion="x" * 4001 + "y"), rollout(23, 0, 0, completion="xxxxxxxxy"))
    monkeypatch.setattr(regex, "SECONDS", 1.0)
    return run


def test_a_pattern_that_explodes_gives_a_part_in_time_and_the_rest_on_going_on(trap: Run, team: Team) -> None:
    start = time.monotonic()
    page = read_page(team, ask(f"run=1&re={SLOW}"))
    assert time.monotonic() - start < 4
    assert page.examined is not None
    assert page.examined.timed_out
    assert [row.step for row in page.rows] == [23]
    rest = read_page(team, ask(f"run=1&re={SLOW}", page.examined.cursor))
    assert [row.step for row in rest.rows] == [21]
    assert rest.examined is not None


def test_a_stream_that_takes_too_long_says_so_instead_of_ending_early(trap: Run, team: Team, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lab.rollouts.browse.pages.STREAM_SECONDS", 0.3)
    with pytest.raises(TooSlow):
        list(stream_rollouts(team, ask(f"run=1&re={SLOW}")))
