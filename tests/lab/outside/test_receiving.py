"""Runs sent from elsewhere: the lab ends up with exactly the bytes that were written, however often and in whatever pieces they come."""

import random
import threading
import uuid
from datetime import timedelta

import pytest
from django.db import connection
from django.utils import timezone

from lab.accounts.models import Team, User
from lab.audit.models import Entry
from lab.outside import receiving
from lab.outside.receiving import OWNER, Opening, Refused, open_run, receive
from lab.runs.models import Run, Status
from lab.supervisor import sweeper
from tests.lab.supervisor.spools import assert_database_equals_spool, finished, rollout, started, steps
from trainers import spool
from trainers.events import AnyEvent, Asked, Checkpoint, Message

KEY = uuid.UUID("0f0f0f0f-0000-4000-8000-000000000001")


def opening(**fields: object) -> Opening:
    values = {"key": KEY, "name": "mine", "trainer": "grpo", "policy": "p", "task": "t", "total_steps": 10, "config": {"seed": 1}}
    return Opening(**{**values, **fields})  # type: ignore[arg-type]


def lines(*events: AnyEvent) -> bytes:
    return b"".join(spool.encoder.encode(event) + b"\n" for event in events)


@pytest.fixture
def run(team: Team, owner: User) -> Run:
    return open_run(team, owner, opening())[0]


def test_a_run_appears_runs_and_finishes(run: Run, owner: User) -> None:
    assert (run.status, run.number, run.created_by, run.outside) == (Status.RUNNING, 1, owner, True)
    data = lines(started(), *steps(1, 3))
    assert receive(run, 0, data) == receiving.Heard(len(data), stop=False)
    assert_database_equals_spool(run)
    receive(run, len(data), lines(finished()))
    assert (run.status, run.step, run.owner) == (Status.FINISHED, 3, "")
    assert Entry.objects.get(action="run.launch").object_id == str(run.pk)


def test_opening_twice_gives_the_same_run_and_two_teams_share_no_key(run: Run, team: Team, owner: User, stranger: User) -> None:
    data = lines(started())
    receive(run, 0, data)
    again, offset = open_run(team, owner, opening(name="another name"))
    assert (again.pk, again.name, offset) == (run.pk, "mine", len(data))
    theirs, offset = open_run(stranger.memberships.get().team, stranger, opening())
    assert (theirs.pk != run.pk, offset) == (True, 0)


@pytest.mark.parametrize("seed", range(5))
def test_any_pieces_in_any_order_end_as_the_bytes_that_were_written(run: Run, seed: int) -> None:
    """A sender that forgets answers, repeats itself and starts over at wrong places."""
    draw = random.Random(seed)
    rows = lines(started(), *steps(1, 4), finished()).splitlines(keepends=True)
    ends = [0]
    for row in rows:
        ends.append(ends[-1] + len(row))
    at = 0
    while at < ends[-1]:
        place = ends.index(at)
        piece = rows[place : place + draw.randint(1, 9)]
        said = receive(run, at, b"".join(piece)).offset
        if draw.random() < 0.5:  # the answer was lost: sent again, and from an earlier place
            assert receive(run, at, b"".join(piece)).offset == said
            assert receive(run, ends[draw.randrange(place + 1)], b"".join(piece)).offset >= said
        at = receive(run, said, b"").offset
    assert (run.folder / spool.SPOOL).read_bytes() == b"".join(rows)
    assert_database_equals_spool(run)


@pytest.mark.parametrize(
    ("data", "field", "words"),
    [
        (b'{"event": "metrics"', "body", "not complete"),
        (b"garbage\n", "body.1", "line 1 is not an event"),
        (b'{"event":"launch-missiles","attempt":1,"time":1}\n', "body.1", "line 1 is not an event"),
        (lines(started(), Checkpoint(attempt=1, time=1.0, step=1, path="../../etc", bytes=1)), "body.2", "may not send: checkpoint"),
        (
            lines(Asked(attempt=1, time=1.0, key="k", step=1, group=0, prompt=[Message("user", "x")], completions=["a", "b"], deadline=2.0)),
            "body.1",
            "asked",
        ),
        (b"\n" * 3, "body.1", "line 1"),
    ],
)
def test_what_is_no_event_is_refused_whole_with_its_line(run: Run, data: bytes, field: str, words: str) -> None:
    with pytest.raises(Refused, match=words) as refused:
        receive(run, 0, data)
    assert refused.value.field == field
    assert receive(run, 0, b"").offset == 0


@pytest.mark.parametrize(
    ("fields", "field"),
    [({"name": "x" * 101}, "name"), ({"trainer": "ppo"}, "trainer"), ({"total_steps": -1}, "total_steps"), ({"config": {"a": "\0"}}, "config")],
)
def test_an_opening_that_makes_no_sense_names_its_field(team: Team, owner: User, fields: dict[str, object], field: str) -> None:
    with pytest.raises(Refused) as refused:
        open_run(team, owner, opening(**fields))
    assert refused.value.field == field
    assert not Run.objects.exists()


def test_silence_loses_a_run_no_worker_takes_it_and_a_report_brings_it_back(run: Run) -> None:
    Run.objects.filter(pk=run.pk).update(lease_until=timezone.now() - timedelta(seconds=1))
    sweeper.lose_expired()
    run.refresh_from_db()
    assert run.status == Status.LOST
    assert "stopped reporting" in run.reason
    assert not Run.objects.waiting().exists()
    assert not run.claim("worker/1")
    assert not run.resume()
    receive(run, 0, lines(started()))
    assert run.status == Status.RUNNING


def test_a_person_who_stops_it_is_heard_at_the_next_report(run: Run) -> None:
    receive(run, 0, data := lines(started()))
    assert run.request_stop()
    assert receive(run, len(data), b"").stop
    receive(run, len(data), lines(finished(outcome="stopped", step=3)))
    assert run.status == Status.STOPPED


def test_a_script_started_again_goes_on_in_the_same_run(run: Run) -> None:
    first = lines(started(), *steps(1, 2), finished(outcome="failed", error="out of memory"))
    receive(run, 0, first)
    assert (run.status, run.reason) == (Status.FAILED, "out of memory")
    second = lines(started(2, from_step=1), *steps(2, 3, attempt=2), finished(2))
    receive(run, len(first), second)
    assert (run.status, run.attempt, run.reason) == (Status.FINISHED, 2, "")
    assert_database_equals_spool(run)


def test_a_torn_line_of_a_web_process_that_died_is_cut_off(run: Run) -> None:
    receive(run, 0, data := lines(started()))
    with (run.folder / spool.SPOOL).open("ab") as file:
        file.write(b'{"event": "metr')
    assert receive(run, len(data), lines(*steps(1, 1))).offset > len(data)
    assert_database_equals_spool(run)


@pytest.mark.django_db(transaction=True)
def test_two_senders_of_the_same_piece_store_it_once(team: Team, owner: User) -> None:
    run, _ = open_run(team, owner, opening())
    data, barrier, heard = lines(started(), *steps(1, 3)), threading.Barrier(4), list[int]()

    def send() -> None:
        barrier.wait()
        heard.append(receive(Run.objects.get(pk=run.pk), 0, data).offset)
        connection.close()

    threads = [threading.Thread(target=send) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert heard == [len(data)] * 4
    assert_database_equals_spool(run)


def test_hostile_text_is_stored_as_text(run: Run) -> None:
    receive(run, 0, lines(started(), rollout(completion="<script>alert(1)</script>")))
    assert run.rollouts == 1
    assert Run.objects.get(pk=run.pk).owner == OWNER
