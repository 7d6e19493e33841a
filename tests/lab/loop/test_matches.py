"""Blind matches: the queue comes by itself once, holds both sides in a drawn order, and says in words why it cannot."""

import threading
from typing import Any

import pytest
from django.db import connection
from django.test import Client

from lab.data.loop import chores, matches
from lab.data.loop.models import Match
from lab.labelling.labels.models import Item, Kind, Purpose, Queue
from lab.labelling.labels.new_queues import make_queue
from lab.rollouts.trajectories.models import Rollout
from lab.teams.accounts.models import Role, Team, User
from lab.training.runs.models import Run, Status
from tests.conftest import make_member
from tests.lab.loop.making import finished_run, heldout
from tests.lab.supervisor.spools import started

PROMPTS = 44  # enough that a drawn order on 40 pairs shows both ways
BEFORE = [f"before {number}" for number in range(PROMPTS)]
AFTER = [f"after {number}" if number >= 4 else f"before {number}" for number in range(PROMPTS)]  # the first four are the same


@pytest.fixture
def run(team: Team, owner: User) -> Run:
    return finished_run(team, owner, *heldout(0, BEFORE), *heldout(50, ["half-way"] * PROMPTS), *heldout(100, AFTER))


def wanted(run: Run, **fields: Any) -> Match:
    return Match.objects.create(team=run.team, child=run, created_by=run.created_by, **fields)


def steps_of(item: Item) -> list[int]:
    steps = dict(Rollout.across_teams.filter(pk__in=item.rollouts).values_list("pk", "step"))
    return [steps[pk] for pk in item.rollouts]


def test_a_finished_child_gets_a_blind_queue_of_the_answers_that_differ(run: Run) -> None:
    match = wanted(run)
    chores.run_loop_chores()
    match.refresh_from_db()
    assert (match.compared, match.same, match.problem) == (PROMPTS, 4, "")
    queue = match.queue
    assert queue is not None
    assert (queue.purpose, queue.kind, queue.blind, queue.overlap, queue.assigned_only) == (Purpose.AB, Kind.PAIR, True, 1, False)
    items = list(queue.items.all())
    assert len(items) == PROMPTS - 4
    for item in items:
        texts = dict(Rollout.across_teams.filter(pk__in=item.rollouts).values_list("step", "completion"))
        assert sorted(texts) == [0, 100]
        assert texts[0] != texts[100]
        assert set(Rollout.across_teams.filter(pk__in=item.rollouts).values_list("prompt", flat=True)) == {item.prompt_id}
    assert {tuple(steps_of(item)) for item in items} == {(0, 100), (100, 0)}  # no place belongs to a side


def test_sweeping_again_makes_no_second_queue(run: Run) -> None:
    wanted(run)
    for _ in range(3):
        chores.run_loop_chores()
    assert Queue.across_teams.count() == 1


def test_a_deleted_queue_stays_deleted(run: Run) -> None:
    match = wanted(run)
    chores.run_loop_chores()
    Queue.across_teams.all().delete()
    chores.run_loop_chores()
    match.refresh_from_db()
    assert match.queue is None
    assert not Queue.across_teams.exists()


def test_it_waits_for_the_child_to_finish(run: Run) -> None:
    match = wanted(run)
    for status in (Status.QUEUED, Status.RUNNING, Status.FAILED, Status.STOPPED):
        Run.across_teams.filter(pk=run.pk).update(status=status)
        assert not matches.pair_match(match.pk)
    assert not Queue.across_teams.exists()


def test_a_crash_half_way_leaves_nothing_and_the_next_sweep_does_it_all(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    match = wanted(run)

    def dies(*args: Any, **kwargs: Any) -> Queue:
        make_queue(*args, **kwargs)
        raise ConnectionError("the worker is gone")

    with monkeypatch.context() as patched:
        patched.setattr(matches, "make_queue", dies)
        with pytest.raises(ConnectionError):
            chores.run_loop_chores()
    assert not Queue.across_teams.exists()
    chores.run_loop_chores()
    match.refresh_from_db()
    assert match.queue is not None
    assert match.queue.items.count() == PROMPTS - 4


@pytest.mark.django_db(transaction=True)
def test_of_many_workers_one_makes_the_queue(team: Team, owner: User) -> None:
    match = wanted(finished_run(team, owner, *heldout(0, BEFORE), *heldout(100, AFTER)))
    barrier, acted = threading.Barrier(6), list[bool]()

    def work() -> None:
        try:
            barrier.wait()
            acted.append(matches.pair_match(match.pk))
        finally:
            connection.close()

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(acted) == [False] * 5 + [True]
    assert Queue.across_teams.count() == 1


def test_prompts_are_drawn_with_a_seed_and_people_are_assigned(run: Run, owner: User, stranger: User) -> None:
    first = wanted(run, prompts=3, overlap=2, labellers=[owner.pk, stranger.pk])
    matches.pair_match(first.pk)
    queue = Queue.across_teams.get()
    chosen = set(queue.items.values_list("prompt", flat=True))
    assert (len(chosen), queue.overlap, queue.assigned_only) == (3, 2, True)
    assert [member.user for member in queue.members.all()] == [owner]  # not the stranger
    first.delete()
    queue.delete()
    matches.pair_match(wanted(run, prompts=3).pk)
    assert set(Queue.across_teams.get().items.values_list("prompt", flat=True)) == chosen


@pytest.mark.parametrize(
    ("events", "words"),
    [
        ([], "has no held-out answers at its last step"),
        (heldout(0, BEFORE), "has no held-out answers at its last step"),
        (heldout(100, AFTER), "was not evaluated before its first step"),
        ([*heldout(0, BEFORE), *heldout(100, BEFORE)], f"all {PROMPTS} held-out prompts identically"),
    ],
)
def test_what_cannot_be_compared_says_why(team: Team, owner: User, events: list[Any], words: str) -> None:
    match = wanted(finished_run(team, owner, *events))
    chores.run_loop_chores()
    match.refresh_from_db()
    assert words in match.problem
    assert match.queue is None
    assert not Queue.across_teams.exists()


def test_steps_that_an_attempt_did_again_are_not_compared(team: Team, owner: User) -> None:
    again = [started(2, 50), *(event.__class__(**{**fields(event), "attempt": 2, "completion": "second try"}) for event in heldout(100, AFTER)[:-1])]
    run = finished_run(team, owner, *heldout(0, BEFORE), *heldout(100, AFTER), *again)
    found, problem = matches.pair_heldout_answers(run, None)
    assert problem == ""
    assert {child.text for child, _ in found.pairs} == {"second try"}


def fields(event: Any) -> dict[str, Any]:
    return {name: getattr(event, name) for name in event.__struct_fields__}


def test_two_runs_are_matched_on_the_prompts_they_share(run: Run, team: Team, owner: User, as_owner: Client) -> None:
    other = finished_run(team, owner, *heldout(0, BEFORE), *heldout(80, [f"other {number}" for number in range(5)]))
    apart = finished_run(team, owner, *heldout(0, BEFORE, "!"), *heldout(80, AFTER, "!"))
    url = f"/runs/{run.pk}/match/"
    response = as_owner.post(url, {"against": str(other.pk), "prompts": "50", "overlap": "1"})
    match = Match.across_teams.get()
    assert response.url == f"/label/{match.queue_id}/"  # type: ignore[attr-defined]
    assert (match.against, match.compared, match.same) == (other, 5, 0)
    assert {tuple(sorted(steps_of(item))) for item in match.queue.items.all()} == {(80, 100)}  # type: ignore[union-attr]
    for against, words in (
        (str(apart.pk), "different prompts"),
        (str(run.pk), "against itself"),
        ("x", "no such run"),
        (str(run.pk)[:-1], "no such"),
    ):
        page = as_owner.post(url, {"against": against, "prompts": "5", "overlap": "1"}, follow=True).content.decode()
        assert words in page
    assert "1 to 2,000 prompts" in as_owner.post(url, {"prompts": "0", "overlap": "1"}, follow=True).content.decode()
    assert Match.across_teams.count() == 1


def test_only_leads_of_the_team_ask_for_a_match(run: Run, team: Team, client: Client, as_stranger: Client, stranger: User) -> None:
    url, asked = f"/runs/{run.pk}/match/", {"prompts": "5", "overlap": "1"}
    assert as_stranger.post(url, asked).status_code == 404
    theirs = finished_run(stranger.memberships.get().team, stranger, *heldout(0, BEFORE), *heldout(100, AFTER))
    assert "no such run" in as_stranger.post(f"/runs/{theirs.pk}/match/", {**asked, "against": str(run.pk)}, follow=True).content.decode()
    client.force_login(make_member("ann@example.org", team, Role.ANNOTATOR))
    assert client.post(url, asked).status_code == 403
    client.force_login(make_member("lead@example.org", team, Role.RESEARCHER))
    assert client.get(url).status_code == 405
    assert not Match.across_teams.exists()
