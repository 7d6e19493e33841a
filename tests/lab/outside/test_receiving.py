"""Runs sent from elsewhere: the lab ends up with exactly the bytes that were written, however often and in whatever pieces they come."""

import random
import threading
import time
import uuid
import zlib
from datetime import timedelta
from typing import Any

import numpy as np
import pytest
from django.db import connection
from django.utils import timezone
from msgspec import structs

from lab.lib.refusals import Refusal
from lab.rollouts.trajectories.models import RolloutTokens
from lab.supervision.outside import received_spools
from lab.supervision.outside.event_lines import check_lines
from lab.supervision.outside.received_spools import OWNER, RunOpening, open_run, receive_spool_piece
from lab.supervision.supervisor import sweeper
from lab.teams.accounts.models import Team, User
from lab.teams.audit.models import Entry
from lab.training.runs.models import LogChunk, Run, Status
from lab.watching.usage.models import Quota
from tests.lab.supervisor.spools import alternatives, assert_database_equals_spool, finished, measured, rollout, started, steps
from trainers.contract import arrays, spool
from trainers.contract.events import AnyEvent, Asked, Checkpoint, Message, RolloutNode, Warned

KEY = uuid.UUID("0f0f0f0f-0000-4000-8000-000000000001")


def opening(**fields: object) -> RunOpening:
    values = {"key": KEY, "name": "mine", "trainer": "grpo", "policy": "p", "task": "t", "total_steps": 10, "config": {"seed": 1}}
    return RunOpening(**{**values, **fields})  # type: ignore[arg-type]


def lines(*events: AnyEvent) -> bytes:
    return b"".join(spool.encoder.encode(event) + b"\n" for event in events)


@pytest.fixture
def run(team: Team, owner: User) -> Run:
    return open_run(team, owner, opening())[0]


def test_a_run_appears_runs_and_finishes(run: Run, owner: User) -> None:
    assert (run.status, run.number, run.created_by, run.outside) == (Status.RUNNING, 1, owner, True)
    data = lines(started(), *steps(1, 3))
    assert receive_spool_piece(run, 0, data) == received_spools.SpoolReceipt(len(data), stop=False)
    assert_database_equals_spool(run)
    receive_spool_piece(run, len(data), lines(finished()))
    assert (run.status, run.step, run.owner) == (Status.FINISHED, 3, "")
    assert Entry.across_teams.get(action="run.launch").object_id == str(run.pk)


def test_a_run_that_is_sent_after_it_has_trained_took_as_long_as_it_trained(run: Run) -> None:
    hour = 3600.0
    began = time.time() - 5 * hour
    events = [started(), *steps(1, 3), finished()]
    sent = [structs.replace(event, time=began + place * hour / (len(events) - 1)) for place, event in enumerate(events)]
    receive_spool_piece(run, 0, lines(*sent))
    assert run.started_at is not None
    assert run.finished_at is not None
    assert (run.finished_at - run.started_at).total_seconds() == pytest.approx(hour)
    assert run.started_at.timestamp() == pytest.approx(began)
    ahead = [structs.replace(event, time=time.time() + hour) for event in (started(attempt=2, from_step=3), finished(attempt=2))]
    receive_spool_piece(run, receive_spool_piece(run, 0, b"").offset, lines(*ahead))
    assert run.finished_at <= timezone.now()  # a script's clock that is ahead


def test_opening_twice_gives_the_same_run_and_two_teams_share_no_key(run: Run, team: Team, owner: User, stranger: User) -> None:
    data = lines(started())
    receive_spool_piece(run, 0, data)
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
        said = receive_spool_piece(run, at, b"".join(piece)).offset
        if draw.random() < 0.5:  # the answer was lost: sent again, and from an earlier place
            assert receive_spool_piece(run, at, b"".join(piece)).offset == said
            assert receive_spool_piece(run, ends[draw.randrange(place + 1)], b"".join(piece)).offset >= said
        at = receive_spool_piece(run, said, b"").offset
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
        (lines(started(), rollout(logprobs=arrays.pack_array([0.0] * 3, "e"))), "body.2.logprobs", "3 values for 4 token ids"),
        (lines(rollout(ids=b"")), "body.1.lengths", "4 values for 0 token ids"),
        (lines(rollout(lengths=b"")), "body.1.lengths", "0 values for 4 token ids"),
        (lines(rollout(ids=arrays.pack_array(np.zeros(20_000), "H"))), "body.1.ids", "may come with up to 16,456 tokens"),
        (lines(rollout(ids=b"fz" + zlib.compress(bytes(40_000_000)))), "body.1.ids", "more than"),
        (lines(rollout(mask=b"Bz123")), "body.1.mask", "damaged"),
        (lines(measured(1, values={f"m{number}": 1.0 for number in range(2001)})), "body.1", "more than 2,000 metrics"),
        (lines(rollout(nodes=[RolloutNode(number, "policy") for number in range(201)])), "body.1.nodes", "more than 200 nodes"),
    ],
)
def test_what_is_no_event_is_refused_whole_with_its_line(run: Run, data: bytes, field: str, words: str) -> None:
    with pytest.raises(Refusal, match=words) as refused:
        receive_spool_piece(run, 0, data)
    assert refused.value.field == field
    assert receive_spool_piece(run, 0, b"").offset == 0


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"name": "x" * 101}, "name"),
        ({"trainer": "ppo"}, "trainer"),
        ({"total_steps": -1}, "total_steps"),
        ({"config": {"a": "\0"}}, "config"),
        ({"config": {"a": [float("nan")]}}, "config"),
    ],
)
def test_an_opening_that_makes_no_sense_names_its_field(team: Team, owner: User, fields: dict[str, object], field: str) -> None:
    with pytest.raises(Refusal) as refused:
        open_run(team, owner, opening(**fields))
    assert refused.value.field == field
    assert not Run.across_teams.exists()


def test_arrays_that_unpack_to_far_more_than_was_sent_are_refused(run: Run) -> None:
    one = arrays.pack_array(np.zeros(16_000), "H")
    many = dict.fromkeys(("ids", "lengths", "logprobs", "entropies", "mask", "weights", "ratios", "clipped"), one)
    receive_spool_piece(run, 0, lines(rollout(**many)))
    with pytest.raises(Refusal, match="far more than was sent"):
        receive_spool_piece(run, 0, lines(*[rollout(sample=number, **many) for number in range(60)]))


@pytest.mark.feature(42)
def test_alternatives_are_taken_within_the_limits(run: Run) -> None:
    receive_spool_piece(run, 0, lines(started(), rollout(**alternatives())))
    assert_database_equals_spool(run)
    tokens = RolloutTokens.across_teams.get()
    assert {name: bytes(getattr(tokens, name)) for name in alternatives()} == alternatives()
    refused = {
        "alternative_ids": {"alternative_logprobs": b""},
        "alternative_texts": {"alternative_texts": arrays.pack_texts(["one"])},
        "ranks": {"ranks": arrays.pack_ids([1])},
    }
    for field, change in refused.items():
        with pytest.raises(Refusal) as found:
            check_lines(lines(rollout(1, 1, **alternatives() | change)))
        assert found.value.field == f"body.1.{field}"
    many = {"alternative_ids": arrays.pack_ids([1] * 84), "alternative_logprobs": arrays.pack_array([0.0] * 84, "e")}
    with pytest.raises(Refusal, match="more than 80 values"):
        check_lines(lines(rollout(1, 1, **alternatives() | many)))
    bomb = b"tz" + zlib.compress(b"a" * (5 << 20))
    with pytest.raises(Refusal, match="more than"):
        check_lines(lines(rollout(1, 1, **alternatives() | {"alternative_texts": bomb})))


def test_a_team_whose_storage_is_used_up_can_send_nothing_more(run: Run, team: Team, owner: User) -> None:
    quota = Quota.objects.create(team=team, storage_bytes=100_000)
    receive_spool_piece(run, 0, first := lines(started(), *steps(1, 3)))
    quota.storage_bytes = len(first) + 10
    quota.save()
    with pytest.raises(Refusal, match=r"storage quota has .* left") as refused:
        receive_spool_piece(run, len(first), lines(*steps(4, 4)))
    assert refused.value.field == "storage"
    assert receive_spool_piece(run, 0, b"").offset == len(first)
    quota.storage_bytes = 0
    quota.save()
    with pytest.raises(Refusal, match="storage quota"):
        open_run(team, owner, opening(key=uuid.uuid4()))
    assert open_run(team, owner, opening())[1] == len(first)
    quota.delete()
    assert receive_spool_piece(run, len(first), more := lines(*steps(4, 4))).offset == len(first) + len(more)


def test_many_warnings_are_one_text(run: Run, django_assert_max_num_queries: Any) -> None:
    data = lines(started(), *[Warned(attempt=1, time=1.0, message=f"warning {number}", step=number) for number in range(500)])
    with django_assert_max_num_queries(60):
        receive_spool_piece(run, 0, data)
    assert LogChunk.objects.get(run=run, notice=True).text.count("\n") == 500


def test_silence_loses_a_run_no_worker_takes_it_and_a_report_brings_it_back(run: Run) -> None:
    Run.across_teams.filter(pk=run.pk).update(lease_until=timezone.now() - timedelta(seconds=1))
    sweeper.lose_expired()
    run.refresh_from_db()
    assert run.status == Status.LOST
    assert "stopped reporting" in run.reason
    assert not Run.across_teams.waiting().exists()
    assert not run.claim("worker/1")
    assert not run.resume()
    receive_spool_piece(run, 0, lines(started()))
    assert run.status == Status.RUNNING


def test_a_person_who_stops_it_is_heard_at_the_next_report(run: Run) -> None:
    receive_spool_piece(run, 0, data := lines(started()))
    assert run.request_stop()
    assert receive_spool_piece(run, len(data), b"").stop
    receive_spool_piece(run, len(data), lines(finished(outcome="stopped", step=3)))
    assert run.status == Status.STOPPED


def test_a_script_started_again_goes_on_in_the_same_run(run: Run) -> None:
    first = lines(started(), *steps(1, 2), finished(outcome="failed", error="out of memory"))
    receive_spool_piece(run, 0, first)
    assert (run.status, run.reason) == (Status.FAILED, "out of memory")
    second = lines(started(2, from_step=1), *steps(2, 3, attempt=2), finished(2))
    receive_spool_piece(run, len(first), second)
    assert (run.status, run.attempt, run.reason) == (Status.FINISHED, 2, "")
    assert_database_equals_spool(run)


def test_a_torn_line_of_a_web_process_that_died_is_cut_off(run: Run) -> None:
    receive_spool_piece(run, 0, data := lines(started()))
    with (run.folder / spool.SPOOL).open("ab") as file:
        file.write(b'{"event": "metr')
    assert receive_spool_piece(run, len(data), lines(*steps(1, 1))).offset > len(data)
    assert_database_equals_spool(run)


@pytest.mark.django_db(transaction=True)
def test_two_senders_of_the_same_piece_store_it_once(team: Team, owner: User) -> None:
    run, _ = open_run(team, owner, opening())
    data, barrier, heard = lines(started(), *steps(1, 3)), threading.Barrier(4), list[int]()

    def send() -> None:
        barrier.wait()
        heard.append(receive_spool_piece(Run.across_teams.get(pk=run.pk), 0, data).offset)
        connection.close()

    threads = [threading.Thread(target=send) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert heard == [len(data)] * 4
    assert_database_equals_spool(run)


def test_hostile_text_is_stored_as_text(run: Run) -> None:
    receive_spool_piece(run, 0, lines(started(), rollout(completion="<script>alert(1)</script>")))
    assert run.rollouts == 1
    assert Run.across_teams.get(pk=run.pk).owner == OWNER
