"""Reordering what waits: chains in one piece, priorities that fit the order, and others who act at the same time."""

import threading
from datetime import timedelta
from uuid import UUID

import pytest
from django.db import connection
from django.utils import timezone

from lab.lib.refusals import InputRefusal, Refusal
from lab.supervision.supervisor.run_claims import claim_next_run
from lab.teams.accounts.models import Team
from lab.teams.audit.models import Entry
from lab.training.runs.models import Priority, Run, Status
from lab.training.runs.queue_moves import Move, change_priority, move_run, move_to_queue
from lab.training.runs.queue_order import order_chains
from lab.training.workers.models import Worker
from lab.watching.usage.models import Quota
from tests.lab.supervisor.spools import make_run

pytestmark = [pytest.mark.django_db, pytest.mark.feature(5)]


def queue_runs(team: Team, count: int) -> list[Run]:
    """Numbers 1 to ``count``, queued a minute after each other."""
    return [make_run(team, queued_at=timezone.now() + timedelta(minutes=number)) for number in range(count)]


def order(team: Team, queue: str = "gpu") -> list[int]:
    runs = Run.across_teams.filter(team=team, queue=queue, status=Status.QUEUED)
    return [run.number for chain in order_chains(runs) for run in chain]


@pytest.mark.parametrize(
    ("number", "move", "before", "expected"),
    [
        (4, Move.TOP, None, [4, 1, 2, 3]),
        (3, Move.UP, None, [1, 3, 2, 4]),
        (2, Move.DOWN, None, [1, 3, 2, 4]),
        (1, Move.BOTTOM, None, [2, 3, 4, 1]),
        (4, Move.BEFORE, 2, [1, 4, 2, 3]),
        (1, Move.BEFORE, 4, [2, 3, 1, 4]),
    ],
)
def test_every_move_puts_the_run_where_it_says(team: Team, number: int, move: Move, before: int | None, expected: list[int]) -> None:
    queue_runs(team, 4)
    assert move_run(team, number, move, before).changed
    assert order(team) == expected
    make_run(team)
    assert order(team) == [*expected, 5]  # launched later: behind all of them
    assert Entry.across_teams.filter(action="run.move").count() == 1


def test_a_chain_moves_as_one_and_nothing_gets_between_its_stages(team: Team) -> None:
    one, two, three, _ = queue_runs(team, 4)
    Run.across_teams.filter(pk=three.pk).update(parent=two)
    Run.across_teams.filter(pk=two.pk).update(parent=one)
    change = move_run(team, 4, Move.BEFORE, 3)
    assert order(team) == [4, 1, 2, 3]
    assert "before #1" in change.words
    assert move_run(team, 3, Move.TOP).words.startswith("Moved #1, #2 and #3 to the top")
    assert order(team) == [1, 2, 3, 4]
    change_priority(team, 2, Priority.LOW)
    assert order(team) == [4, 1, 2, 3]
    claimed = [claim_next_run(str(one.pk), f"w{number}") for number in range(3)]
    assert [found and found[0].number for found in claimed] == [4, 1, None]  # the other stages wait for theirs


def test_a_chain_is_as_long_as_people_make_it() -> None:
    now = timezone.now()
    runs = [Run(pk=UUID(int=number), parent_id=UUID(int=number - 1) if number else None, number=number, queued_at=now) for number in range(3000)]
    branch = Run(pk=UUID(int=5000), parent_id=UUID(int=0), number=5000, queued_at=now)
    [chain] = order_chains([branch, *reversed(runs)])
    assert [run.number for run in chain] == [*range(3000), 5000]


def test_a_run_gets_the_priority_of_the_place_it_is_put_at(team: Team) -> None:
    queue_runs(team, 3)
    change_priority(team, 1, Priority.HIGH)
    change_priority(team, 3, Priority.LOW)
    assert "Its priority is high now." in move_run(team, 2, Move.TOP).words
    assert "Its priority is low now." in move_run(team, 1, Move.BOTTOM).words
    assert order(team) == [2, 3, 1]


def test_another_queue_must_be_served_and_allowed(team: Team) -> None:
    queue_runs(team, 2)
    with pytest.raises(InputRefusal, match="No worker serves the queue big"):
        move_to_queue(team, 1, "big")
    Worker.objects.create(name="w", host="h", pid=1, queues=["big"])
    assert move_to_queue(team, 1, "big").words == "Moved #1 to the queue big."
    assert (order(team), order(team, "big")) == ([2], [1])
    Quota.objects.create(team=team, queues=["gpu"])
    with pytest.raises(InputRefusal, match="may not use the queue big"):
        move_to_queue(team, 2, "big")


def test_a_run_that_was_claimed_meanwhile_is_said_so_and_nothing_moves(team: Team) -> None:
    first, *_ = queue_runs(team, 3)
    assert claim_next_run(str(first.pk), "box:1")
    with pytest.raises(Refusal, match="#1 waits no longer: the worker box:1 has taken it"):
        move_run(team, 1, Move.BOTTOM)
    with pytest.raises(Refusal, match="#1 is not in the queue gpu any more"):
        move_run(team, 3, Move.BEFORE, 1)
    with pytest.raises(Refusal, match="no run #9"):
        change_priority(team, 9, Priority.HIGH)
    with pytest.raises(Refusal, match="no run #2"):
        move_run(Team.objects.create(name="Other", slug="other"), 2, Move.TOP)
    assert order(team) == [2, 3]


@pytest.mark.django_db(transaction=True)
def test_two_people_and_a_worker_at_once_lose_nothing(team: Team) -> None:
    first, *_ = queue_runs(team, 6)
    problems: list[BaseException] = []

    def act(numbers: list[int], move: Move) -> None:
        try:
            for number in numbers:
                move_run(team, number, move)
        except BaseException as error:
            problems.append(error)
        finally:
            connection.close()

    threads = [threading.Thread(target=act, args=([6, 5, 4], Move.TOP)), threading.Thread(target=act, args=([2, 3, 4], Move.BOTTOM))]
    for thread in threads:
        thread.start()
    claimed = claim_next_run(str(first.pk), "w")
    for thread in threads:
        thread.join()
    assert claimed is not None
    gone = claimed[0].number
    assert [str(error) for error in problems if f"#{gone} waits no longer" not in str(error)] == []
    assert sorted(order(team)) == sorted({1, 2, 3, 4, 5, 6} - {gone})
    places = Run.across_teams.filter(status=Status.QUEUED).values_list("queue_place", flat=True)
    assert len(set(places)) == 5  # each has a place of its own
