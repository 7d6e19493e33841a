"""Selections are read from any address, say what they left out and why, and their own address reads back as the same selection."""

import re
from dataclasses import replace
from typing import Any
from urllib.parse import parse_qsl

import pytest
from django.http import QueryDict
from django.utils import timezone
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lab.rollouts.annotations.models import Comment, Rating, RolloutTag, Tag
from lab.rollouts.browse.fields import FIELDS, MOST_IDS, field_named
from lab.rollouts.browse.histograms import HISTOGRAMS, compute_field_histograms
from lab.rollouts.browse.indexing import index_all
from lab.rollouts.browse.pages import filter_matching_rollouts, read_page
from lab.rollouts.browse.selection import Filter, Selection
from lab.rollouts.trajectories.models import Rollout
from lab.teams.accounts.models import Team, User
from lab.training.runs.models import Run
from tests.lab.browse.stored import ask, places
from tests.lab.supervisor.spools import make_run, rollout, started, store
from trainers.contract.events import Message

words = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20).map(str.strip)
numbers = st.one_of(st.integers(-(10**9), 10**9).map(str), st.floats(-1e9, 1e9).map(str))


def filters_of(name: str) -> st.SearchStrategy[Filter]:
    known = field_named(name)
    assert known is not None
    if known.kind == "number":
        values = st.integers(-(10**9), 10**9).map(str) if known.whole else numbers
    elif known.choices:
        values = st.sampled_from(sorted(known.choices))
    elif known.kind == "ids":
        values = st.lists(st.integers(0, 2**63 - 1).map(str), min_size=1, max_size=MOST_IDS).map(",".join)
    elif known.pattern:
        values = st.from_regex(re.compile(known.pattern, re.ASCII), fullmatch=True)
    else:
        values = words.filter(bool)
    return st.builds(Filter, st.just(name), st.sampled_from(known.operators), values)


names = st.sampled_from([*FIELDS, "component.correct", "component.a:b", "component.&f=x"])
filters = names.filter(lambda name: ":" not in name).flatmap(filters_of)
sorts = st.sampled_from(["", "component.a:b", *(sign + name for name in FIELDS if FIELDS[name].sortable for sign in ("", "-"))])
selections = st.builds(
    Selection,
    runs=st.lists(st.integers(1, 2**31 - 1), max_size=4, unique=True).map(tuple),
    filters=st.lists(filters, max_size=4, unique=True).map(tuple),
    words=words,
    pattern=words,
    sort=sorts,
    tries=st.booleans(),
    after=st.text("abcXYZ019-_", max_size=20),
)


@pytest.mark.feature(90)
@given(selections)
def test_a_selection_survives_its_address(selection: Selection) -> None:
    again = Selection.read(QueryDict(selection.query(after=selection.after)[1:]))
    assert again == selection
    assert again.problems == ()


@given(st.lists(st.tuples(st.sampled_from(["run", "f", "q", "re", "sort", "tries", "after", "x"]), st.text(max_size=30)), max_size=6))
def test_any_address_is_read_and_what_is_left_of_it_reads_back(pairs: list[tuple[str, str]]) -> None:
    query = QueryDict(mutable=True)
    for name, value in pairs:
        query.appendlist(name, value)
    selection = Selection.read(query)
    again = Selection.read(QueryDict(selection.query(after=selection.after)[1:]))
    assert (again, again.problems) == (selection, ())


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("reward:lt:0.03333333333333333", "Reward < 0.03333"),
        ("reward:ge:0.5", "Reward ≥ 0.5"),
        ("step:ge:123456789", "Step ≥ 123456789"),
        ("rollout:in:7", "Rollout is one of 7"),
        ("rollout:in:7,8,9", "Rollout is one of 3"),
    ],
)
def test_a_filter_is_said_in_few_digits_and_asked_in_all(text: str, said: str) -> None:
    found = Filter.read(text)
    assert isinstance(found, Filter)
    assert (found.label, str(found)) == (said, text)


def test_a_new_filter_drops_the_cursor_and_defaults_stay_out_of_the_address() -> None:
    selection = ask("run=3&f=reward:ge:0.5&sort=-length", "abc")
    assert parse_qsl(selection.query()[1:]) == [("run", "3"), ("f", "reward:ge:0.5"), ("sort", "-length")]
    assert selection.query(filters=(), runs=(), sort="") == "?"
    assert "after=abc" in selection.query(after="abc")


@pytest.mark.parametrize(
    ("address", "field", "message", "fix"),
    [
        ("f=reward:ge:abc", "reward", "Reward: 'abc' is not a number", "give one such as 0.5"),
        ("f=reward:ge:nan", "reward", "Reward: 'nan' is not a number", "give one such as 0.5"),
        ("f=step:eq:1.5", "step", "Step: '1.5' is not a whole number", "give one such as 10"),
        ("f=length:eq:", "length", "Length: no value given", "give one such as 10"),
        ("f=finish:is:done", "finish", "Finish reason: 'done' is not one of its values", "choose one of stop, length, turns"),
        ("f=reward:like:1", "reward", "Reward: 'like' is not an operator of this field", "write reward:<operator>:<value> with one of"),
        ("f=password:eq:1", "f", "there is no field 'password' to filter by", "choose one from the list"),
        ("f=run__team__name:eq:1", "f", "there is no field 'run__team__name' to filter by", "choose one from the list"),
        ("f=reward__gt:eq:1", "f", "there is no field 'reward__gt' to filter by", "choose one from the list"),
        ("f=rollout:in:", "rollout", "Rollout: no value given", "give one such as 17,42"),
        ("f=rollout:in:1,-2", "rollout", "Rollout: '-2' is not an ID", "give IDs such as 17,42"),
        ("f=rollout:in:1,,2", "rollout", "Rollout: '' is not an ID", "give IDs such as 17,42"),
        ("f=rollout:in:" + ",".join("1" * 101), "rollout", "Rollout: 101 IDs are too many", "give at most 100"),
        ("run=x", "run", "'x' is not a run number", "give a number such as 2"),
        ("run=99999999999", "run", "'99999999999' is not a run number", "give a number such as 2"),
        ("sort=-tag", "sort", "rollouts cannot be sorted by '-tag'", "click the header"),
        ("q=" + "a" * 501, "q", "words: 501 characters are too many", "give at most 500"),
    ],
)
def test_what_cannot_be_is_left_out_with_the_reason_and_the_rest_stays(address: str, field: str, message: str, fix: str) -> None:
    selection = ask(f"{address}&f=length:ge:10&tries=1")
    assert selection == ask("f=length:ge:10&tries=1")
    (problem,) = selection.problems
    assert (problem.field, problem.message) == (field, message)
    assert problem.fix.startswith(fix)


@pytest.fixture
def run(team: Team, owner: User) -> Run:
    """Four groups: no spread; spread; one member only; one member without a reward."""
    run = make_run(team)
    rewards = {(1, 0): [1.0, 1.0], (1, 1): [0.0, 1.0], (2, 0): [0.5], (2, 1): [0.5, None]}
    events = [
        rollout(step, group, sample, reward=reward, length=10 * step + sample, finish_reason="length" if sample else "stop")
        for (step, group), given in rewards.items()
        for sample, reward in enumerate(given)
    ]
    odd = [
        rollout(3, 0, phase="heldout", reward=0.25, advantage=-0.5, mean_entropy=0.125, max_entropy=2.0, rewards={"correct": 0.5, "7": 3.0}),
        rollout(3, 1, reward=None, filtered="Too LONG: 100% of it", prompt=[Message("user", "Zebra crossing at noon")]),
    ]
    store(run, started(), *events, *odd)
    index_all()
    marked = {(row.step, row.group, row.sample): row for row in Rollout.objects.filter(run=run)}
    tag = Tag.objects.create(team=team, name="Loop")
    RolloutTag.objects.create(rollout=marked[1, 0, 0], tag=tag)
    Rating.objects.create(rollout=marked[1, 1, 0], user=owner, value=4)
    Comment.objects.create(team=team, rollout=marked[1, 1, 1], user=owner, text="why")
    Comment.objects.create(team=team, rollout=marked[1, 0, 1], user=owner, text="gone", deleted_at=timezone.now())
    return run


ALL = [(1, 0, 0), (1, 0, 1), (1, 1, 0), (1, 1, 1), (2, 0, 0), (2, 1, 0), (2, 1, 1), (3, 0, 0), (3, 1, 0)]


def others(*left_out: tuple[int, int, int]) -> list[tuple[int, int, int]]:
    return [place for place in ALL if place not in left_out]


@pytest.mark.feature(51)
@pytest.mark.parametrize(
    ("address", "found"),
    [
        ("f=reward:ge:0.5&f=step:le:2", [(1, 0, 0), (1, 0, 1), (1, 1, 1), (2, 0, 0), (2, 1, 0)]),
        ("f=reward:ne:1", [(1, 1, 0), (2, 0, 0), (2, 1, 0), (3, 0, 0)]),
        ("f=reward:lt:0.25", [(1, 1, 0)]),
        ("f=advantage:eq:-0.5", [(3, 0, 0)]),
        ("f=mean_entropy:gt:0.1", [(3, 0, 0)]),
        ("f=max_entropy:le:2", [(3, 0, 0)]),
        ("f=length:eq:11", [(1, 0, 1), (1, 1, 1)]),
        ("f=length:gt:99999999999", []),
        ("f=length:lt:99999999999", ALL),
        ("f=step:eq:2&f=group:eq:1&f=sample:eq:1", [(2, 1, 1)]),
        ("f=component.correct:lt:1", [(3, 0, 0)]),
        ("f=component.7:eq:3", [(3, 0, 0)]),
        ("f=component.none:ge:0", []),
        ("f=component.x' OR 1=1 --:ge:0", []),
        ("f=finish:is:length", [(1, 0, 1), (1, 1, 1), (2, 1, 1)]),
        ("f=finish:not:length", others((1, 0, 1), (1, 1, 1), (2, 1, 1))),
        ("f=phase:is:heldout", [(3, 0, 0)]),
        ("f=tag:has:loop", [(1, 0, 0)]),
        ("f=tag:lacks:LOOP", others((1, 0, 0))),
        ("f=tag:has:lo%", []),
        ("f=prompt:contains:zebra", [(3, 1, 0)]),
        ('f=prompt:contains:"noon zebra"', []),
        ("f=filtered:contains:long", [(3, 1, 0)]),
        ("f=filtered:contains:100% of", [(3, 1, 0)]),
        ("f=filtered:contains:1%f", []),
        ("f=filtered_out:is:yes", [(3, 1, 0)]),
        ("f=filtered_out:is:no", others((3, 1, 0))),
        ("f=zero_variance:is:yes", [(1, 0, 0), (1, 0, 1), (2, 1, 0), (2, 1, 1)]),
        ("f=zero_variance:is:no", [(1, 1, 0), (1, 1, 1), (2, 0, 0), (3, 0, 0), (3, 1, 0)]),
        ("f=rated:is:yes", [(1, 1, 0)]),
        ("f=rating:ge:4", [(1, 1, 0)]),
        ("f=rating:ne:4", []),
        ("f=commented:is:yes", [(1, 1, 1)]),
        ("f=commented:is:no", others((1, 1, 1))),
    ],
)
@pytest.mark.parametrize("scope", ["run=1&", ""])
def test_each_filter(run: Run, team: Team, scope: str, address: str, found: list[Any]) -> None:
    assert places(team, scope + address) == found


@pytest.mark.parametrize("scope", ["run=1&", "", "q=none&", "f=reward:ge:1&"])
def test_rollouts_by_their_ids(run: Run, team: Team, stranger: User, scope: str) -> None:
    theirs = make_run(stranger.memberships.get().team)
    store(theirs, started(), rollout(1, reward=1.0))
    named = [row.pk for row in Rollout.objects.filter(run=run).order_by("pk")[:2]] + [Rollout.objects.get(run=theirs).pk, 2**62]
    assert places(team, f"{scope}f=rollout:in:{','.join(map(str, named))}") == ([] if "q=" in scope else [(1, 0, 0), (1, 0, 1)])


def test_tags_and_comments_of_another_team_are_nobodys_business(run: Run, stranger: User, team: Team) -> None:
    theirs = stranger.memberships.get().team
    row = Rollout.objects.get(run=run, step=2, group=0)
    RolloutTag.objects.create(rollout=row, tag=Tag.objects.create(team=theirs, name="theirs"))
    Comment.objects.create(team=theirs, rollout=row, user=stranger, text="theirs")
    assert places(team, "f=tag:has:theirs") == []
    assert (2, 0, 0) not in places(team, "f=commented:is:yes")


@pytest.mark.parametrize("sort", ["component.7", "-component.correct", "-rating"])
def test_rollouts_without_a_value_stand_last(run: Run, team: Team, sort: str) -> None:
    rows = read_page(team, ask(f"run=1&sort={sort}")).rows
    first = {"component.7": (3, 0), "-component.correct": (3, 1), "-rating": (1, 1)}[sort]
    assert len(rows) == 9
    assert (rows[0].step, rows[0].group) == first


@given(selections)
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_every_selection_can_be_asked(run: Run, team: Team, selection: Selection) -> None:
    for runs in ((), (1,)):
        asked = replace(selection, runs=runs)
        found = {row.pk for row in read_page(team, asked, 5).rows}
        if not asked.pattern:
            assert found <= set(filter_matching_rollouts(team, asked).values_list("pk", flat=True))
        compute_field_histograms(team, asked, HISTOGRAMS)
