"""Pages of a selection: what is on them, in which order, how they follow each other, and how much was counted."""

from typing import Any

import pytest

from lab.rollouts.browse.pages import Count, find_neighbour_ids, read_page, stream_rollouts
from lab.rollouts.trajectories.models import Rollout
from lab.teams.accounts.models import Team
from lab.training.runs.models import Run
from tests.lab.browse.stored import ask
from tests.lab.supervisor.spools import make_run, rollout, started, steps, store


def everything(team: Team, text: str, size: int = 7) -> list[Rollout]:
    """All pages one after the other; each but the last is full."""
    found, cursor = [], ""
    while True:
        page = read_page(team, ask(text, cursor), size)
        found += page.rows
        assert len(page.rows) == size or not page.next
        cursor = page.next
        if not cursor:
            return found


@pytest.fixture
def run(team: Team) -> Run:
    """Rewards with ties and without a value, in two groups of four over six steps."""
    run = make_run(team)
    rewards = [None, 0.0, 0.5, 0.5, 1.0, -1.0, 0.5]
    events = [
        rollout(step, group, sample, reward=rewards[(step * 8 + group * 4 + sample) % 7], length=10 + sample, mean_entropy=step / 10)
        for step in range(1, 7)
        for group in range(2)
        for sample in range(4)
    ]
    store(run, started(), *events)
    return run


@pytest.fixture
def runs(run: Run, team: Team) -> list[Run]:
    other = make_run(team)
    store(other, started(), *steps(1, 3))
    store(run, *[rollout(7, 0, sample) for sample in range(3)])
    return [run, other]


def expected(rows: list[Rollout], sort: str) -> list[Rollout]:
    name, down = sort.removeprefix("-"), sort.startswith("-")
    rows = sorted(rows, key=lambda row: -row.pk)
    valued = [row for row in rows if getattr(row, name) is not None]
    # reverse=True keeps ties in the order they had, newest first
    return sorted(valued, key=lambda row: getattr(row, name), reverse=down) + [row for row in rows if getattr(row, name) is None]


SORTS = ["reward", "-reward", "length", "-length", "mean_entropy", "-step", "sample", "advantage"]


@pytest.mark.parametrize("sort", SORTS)
@pytest.mark.parametrize("scope", ["run=1", ""])
def test_every_rollout_is_on_one_page_in_order_whatever_the_ties(runs: list[Run], team: Team, sort: str, scope: str) -> None:
    rows = list(Rollout.across_teams.filter(run=runs[0]) if scope else Rollout.across_teams.all())
    found = everything(team, f"{scope}&sort={sort}")
    assert [row.pk for row in found] == [row.pk for row in expected(rows, sort)]


def test_newest_first_is_by_step_in_a_run_and_by_arrival_over_several(runs: list[Run], team: Team) -> None:
    rows = everything(team, "run=1")
    places = [(row.step, row.group, row.sample) for row in rows]
    assert places == sorted(places, reverse=True)
    assert len(places) == 51
    assert [row.pk for row in everything(team, "")] == sorted(Rollout.across_teams.values_list("pk", flat=True), reverse=True)


@pytest.mark.parametrize(
    "scope", ["run=1", "", "run=1&sort=-reward", "sort=reward", "run=1&sort=reward", "run=1&sort=advantage", "run=1&sort=rating"]
)
def test_previous_pages_are_the_same_pages_backwards(runs: list[Run], team: Team, scope: str) -> None:
    forward, page = [], read_page(team, ask(scope), 10)
    assert page.previous == ""
    while True:
        forward.append([row.pk for row in page.rows])
        if not page.next:
            break
        page = read_page(team, ask(scope, page.next), 10)
    backward = [[row.pk for row in page.rows]]
    while page.previous:
        page = read_page(team, ask(scope, page.previous), 10)
        backward.append([row.pk for row in page.rows])
    assert backward[::-1] == forward


def test_neighbours_walk_the_selection(runs: list[Run], team: Team) -> None:
    rows = everything(team, "run=1&sort=-reward")
    for before, row, after in zip([None, *rows], rows, [*rows[1:], None], strict=False):
        ids = (before.pk if before else None, after.pk if after else None)
        assert find_neighbour_ids(team, ask("run=1&sort=-reward"), row) == ids


def test_a_stream_is_the_selection_in_its_order(runs: list[Run], team: Team) -> None:
    assert [row.pk for row in stream_rollouts(team, ask("sort=-reward"))] == [row.pk for row in everything(team, "sort=-reward")]
    assert [row.completion for row in stream_rollouts(team, ask("run=2"), limit=3)] == ["<answer>7</answer>"] * 3


def test_counts_stop_at_a_thousand(run: Run, team: Team) -> None:
    assert read_page(team, ask("run=1&f=step:le:3")).count == Count(24, True)
    store(run, *[rollout(10 + step, 0, sample) for step in range(10) for sample in range(100)])
    assert read_page(team, ask("run=1")).count == Count(1000, False)


def test_rows_come_with_run_prompt_and_the_start_of_their_texts(runs: list[Run], team: Team, django_assert_max_num_queries: Any) -> None:
    with django_assert_max_num_queries(6):
        page = read_page(team, ask(""))
        shown = [(row.run.number, row.prompt_head, row.head, row.rewards) for row in page.rows]
    assert shown[0] == (1, "What is 7 + 0?", "<answer>7</answer>", {"correct": 1.0, "format": None})


def test_rollouts_of_another_team_are_in_no_selection(runs: list[Run], stranger: Any) -> None:
    other = stranger.memberships.get().team
    assert read_page(other, ask("")).rows == []
    assert read_page(other, ask("run=1")).rows == []


@pytest.mark.parametrize("cursor", ["x", "____", "W10", "WzAsIiIsMSw5OTk5OTk5OTk5OTk5OTk5OTk5OTk5OV0", "WzAsIiIsMSwiYSJd", "e30"])
def test_a_cursor_that_is_none_shows_the_first_page(runs: list[Run], team: Team, cursor: str) -> None:
    assert read_page(team, ask("", cursor)).rows == read_page(team, ask("")).rows


def test_a_cursor_of_another_order_shows_the_first_page(runs: list[Run], team: Team) -> None:
    cursor = read_page(team, ask("sort=reward"), 5).next
    assert read_page(team, ask("sort=-length", cursor), 5).rows == read_page(team, ask("sort=-length"), 5).rows


def test_superseded_rollouts_are_left_out_unless_asked_for(team: Team) -> None:
    run = make_run(team)
    store(run, started(), *steps(1, 4), started(attempt=2, from_step=2), *steps(3, 4, attempt=2))
    assert read_page(team, ask("run=1")).count == Count(32, True)
    assert read_page(team, ask("run=1&tries=1")).count == Count(48, True)
