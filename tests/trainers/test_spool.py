"""The spool: whole lines only, torn tails cut, garbage passed over, attempts found, order kept."""

import errno
import json
import os
import threading
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainers.contract.events import AttemptFinished, Checkpoint, Message, Metrics, Phase, Rollout, Turn
from trainers.contract.spool import SPOOL, SpoolError, SpoolWriter, cut_torn_tail, encoder, last_attempt, read_spool_lines

NUMBERS = st.integers(0, 2**31)
texts = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"), max_size=20)
metrics = st.builds(
    Metrics, attempt=NUMBERS, time=st.floats(0, 1e10), step=NUMBERS, values=st.dictionaries(texts, st.floats(allow_nan=False, allow_infinity=False))
)
phases = st.builds(Phase, attempt=NUMBERS, time=st.floats(0, 1e10), name=texts, done=NUMBERS)
rollouts = st.builds(
    Rollout,
    attempt=NUMBERS,
    time=st.just(1.5),
    step=NUMBERS,
    phase=st.sampled_from(["train", "heldout", "sampled"]),
    group=NUMBERS,
    sample=NUMBERS,
    prompt=st.lists(st.builds(Message, role=texts, content=texts), max_size=2),
    completion=texts,
    rewards=st.dictionaries(texts, st.one_of(st.none(), st.floats(-5, 5))),
    reward=st.one_of(st.none(), st.floats(-5, 5)),
    finish_reason=st.sampled_from(["stop", "length", "turns"]),
    turns=st.lists(st.builds(Turn, role=texts, start=NUMBERS, end=NUMBERS), max_size=2),
    ids=st.binary(max_size=10),
)
events = st.lists(st.one_of(metrics, phases, rollouts), max_size=8)


def make_phase(attempt: int = 1, name: str = "training", done: int = 0) -> Phase:
    return Phase(attempt=attempt, time=0.0, name=name, done=done)


def write(path, *events):
    with SpoolWriter(path) as spool:
        for event in events:
            spool.put(event)


def everything(path, limit=8 << 20):
    """All lines, read the way an ingestor does: from offset to offset."""
    found, offset = [], 0
    while True:
        lines = list(read_spool_lines(path, offset, limit))
        if not lines:
            return found
        found += lines
        offset = lines[-1].end


@given(written=events, limit=st.integers(1, 400))
@settings(deadline=None, max_examples=60)
def test_events_are_read_as_they_were_written_whatever_the_window(tmp_path_factory, written, limit):
    path = tmp_path_factory.mktemp("spool") / SPOOL
    write(path, *written)
    lines = everything(path, limit)
    assert [line.event for line in lines] == written
    assert (lines[-1].end if lines else 0) == path.stat().st_size


def test_reading_on_from_any_offset_gives_the_rest(tmp_path):
    path = tmp_path / SPOOL
    write(path, *[make_phase(done=number) for number in range(10)])
    lines = everything(path)
    for index, line in enumerate(lines):
        assert [later.event for later in read_spool_lines(path, line.end)] == [later.event for later in lines[index + 1 :]]


@given(garbage=st.lists(st.binary(max_size=40).filter(lambda line: b"\n" not in line), max_size=5))
@settings(deadline=None)
def test_the_reader_survives_garbage_and_says_where_it_was(tmp_path_factory, garbage):
    path = tmp_path_factory.mktemp("spool") / SPOOL
    good = encoder.encode(make_phase())
    path.write_bytes(b"\n".join([good, *garbage, good]) + b"\n")
    lines = everything(path)
    assert len(lines) == len(garbage) + 2
    assert lines[0].event == lines[-1].event == make_phase()
    assert all(line.error for line in lines if line.event is None)
    assert lines[-1].end == path.stat().st_size


@pytest.mark.parametrize(
    "line",
    [
        b"[" * 200_000,
        b'{"event":' * 50_000,
        b"\0" * 100_000,
        b'{"event":"metrics","attempt":1,"time":0,"step":1e999,"values":{}}',
        b'{"event":"later-version"}',
    ],
    ids=["lists", "objects", "nul", "huge", "unknown"],
)
def test_the_reader_survives_lines_made_to_break_a_parser(tmp_path, line):
    path = tmp_path / SPOOL
    path.write_bytes(line + b"\n" + encoder.encode(make_phase()) + b"\n")
    broken, good = everything(path)
    assert broken.event is None
    assert len(broken.error) < 1000
    assert good.event == make_phase()


def test_an_unfinished_line_is_not_read_until_its_newline_is_there(tmp_path):
    path, line = tmp_path / SPOOL, encoder.encode(make_phase())
    path.write_bytes(line)
    assert everything(path) == []
    path.write_bytes(line + b"\n")
    assert len(everything(path)) == 1


def test_a_file_that_is_not_there_has_no_lines(tmp_path):
    assert everything(tmp_path / SPOOL) == []
    assert last_attempt(tmp_path / SPOOL) == 0
    assert cut_torn_tail(tmp_path / SPOOL) == 0


@given(whole=st.integers(0, 3), tail=st.binary(max_size=80_000).filter(lambda data: b"\n" not in data))
@settings(deadline=None, max_examples=40)
def test_a_torn_tail_is_cut_and_nothing_else(tmp_path_factory, whole, tail):
    path = tmp_path_factory.mktemp("spool") / SPOOL
    lines = b"".join(encoder.encode(make_phase(done=number)) + b"\n" for number in range(whole))
    path.write_bytes(lines + tail)
    assert cut_torn_tail(path) == len(tail)
    assert path.read_bytes() == lines


def test_the_next_attempt_writes_after_the_torn_line_of_a_killed_one(tmp_path):
    path = tmp_path / SPOOL
    write(path, make_phase(1))
    with path.open("ab") as file:
        file.write(encoder.encode(make_phase(1, "torn" * 50_000))[:-7])
    write(path, make_phase(2))
    assert [line.event for line in everything(path)] == [make_phase(1), make_phase(2)]


def test_the_newest_attempt_is_found_behind_garbage_a_torn_tail_and_a_long_line(tmp_path):
    path = tmp_path / SPOOL
    write(path, make_phase(1), make_phase(7, "x" * 300_000))
    assert last_attempt(path) == 7
    with path.open("ab") as file:
        file.write(b"not json\n" * 20_000)
        file.write(encoder.encode(make_phase(9))[:-3])
    assert last_attempt(path) == 7


def test_a_spool_of_nothing_but_garbage_has_no_attempt(tmp_path):
    path = tmp_path / SPOOL
    path.write_bytes(b"garbage\n" * 30_000)
    assert last_attempt(path) == 0


@given(written=st.lists(st.tuples(st.integers(1, 9), st.integers(0, 100_000)), min_size=1, max_size=4))
@settings(deadline=None, max_examples=30)
def test_the_newest_attempt_is_that_of_the_last_line(tmp_path_factory, written):
    path = tmp_path_factory.mktemp("spool") / SPOOL
    write(path, *[make_phase(attempt, "x" * size) for attempt, size in written])
    assert last_attempt(path) == written[-1][0]


def test_events_built_on_the_writers_thread_keep_their_place(tmp_path):
    path, thread = tmp_path / SPOOL, []

    def build():
        thread.append(threading.current_thread().name)
        return [make_phase(name="b"), make_phase(name="c")]

    write(path, make_phase(name="a"), build, make_phase(name="d"))
    assert [line.event.name for line in everything(path)] == ["a", "b", "c", "d"]
    assert thread == ["spool"]


def test_an_event_that_cannot_be_built_is_raised_once_and_the_others_are_written(tmp_path):
    def fail():
        raise ZeroDivisionError

    path = tmp_path / SPOOL
    spool = SpoolWriter(path)
    spool.put(fail)
    spool.put(make_phase())
    with pytest.raises(ZeroDivisionError):
        spool.sync()
    spool.close()
    assert [line.event for line in everything(path)] == [make_phase()]


def test_a_line_says_what_it_is_to_a_person_with_tail(tmp_path):
    path = tmp_path / SPOOL
    write(
        path,
        Checkpoint(attempt=1, time=2.0, step=3, path="checkpoints/checkpoint-3", bytes=4),
        AttemptFinished(attempt=1, time=2.0, outcome="stopped", step=3),
    )
    first, last = path.read_text().splitlines()
    assert json.loads(first) == {"event": "checkpoint", "attempt": 1, "time": 2.0, "step": 3, "path": "checkpoints/checkpoint-3", "bytes": 4}
    assert json.loads(last)["outcome"] == "stopped"


def refusing(monkeypatch, name, number):
    """The system call fails with that number from now on; returns how often it was asked."""
    asked = []

    def refuse(*arguments):
        asked.append(arguments)
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(f"trainers.contract.spool.os.{name}", refuse)
    return asked


def within(seconds, act):
    """What ``act`` raised, in a thread of its own: on a spool whose writer has died it would wait for ever."""
    raised = []

    def run():
        try:
            act()
        except Exception as error:
            raised.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    assert not thread.is_alive(), "it waits for ever"
    return raised


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC, errno.EDQUOT])
def test_a_disk_that_does_not_store_ends_the_run_with_words_and_the_writer_goes_on(tmp_path, monkeypatch, number):
    path = tmp_path / SPOOL
    spool = SpoolWriter(path)
    spool.put(make_phase(name="a"))
    with monkeypatch.context() as broken:
        asked = refusing(broken, "fsync", number)
        [error] = within(20, spool.sync)
    assert isinstance(error, SpoolError)
    assert "the spool cannot be stored" in str(error)
    assert len(asked) == 1
    spool.put(make_phase(name="how it ended"))
    assert within(20, spool.close) == []
    assert [line.event.name for line in everything(path)] == ["a", "how it ended"]


def test_a_file_system_without_fsync_is_a_warning(tmp_path, monkeypatch, caplog):
    refusing(monkeypatch, "fsync", errno.EINVAL)
    spool = SpoolWriter(tmp_path / SPOOL)
    spool.put(make_phase())
    assert within(20, spool.sync) == within(20, spool.close) == []
    assert "without fsync" in caplog.text


def test_a_disk_that_takes_nothing_more_ends_the_writer_and_is_said_to_whoever_writes(tmp_path, monkeypatch):
    spool = SpoolWriter(tmp_path / SPOOL)
    with monkeypatch.context() as broken:
        refusing(broken, "write", errno.EIO)
        spool.put(make_phase())
        [error] = within(20, spool.sync)
    assert isinstance(error, SpoolError)
    with pytest.raises(SpoolError, match="the spool cannot be written"):
        spool.put(make_phase())
    [again] = within(20, spool.close)
    assert again is error
    assert not spool.thread.is_alive()


def test_a_full_disk_is_waited_for(tmp_path, monkeypatch):
    monkeypatch.setattr("trainers.contract.spool.RETRY_SECONDS", 0.01)
    path = tmp_path / SPOOL
    spool = SpoolWriter(path)
    with monkeypatch.context() as broken:
        asked = refusing(broken, "write", errno.ENOSPC)
        spool.put(make_phase())
        deadline = time.monotonic() + 60
        while len(asked) < 3 and time.monotonic() < deadline:
            time.sleep(0.01)
        assert len(asked) >= 3
    assert within(20, spool.close) == []
    assert [line.event for line in everything(path)] == [make_phase()]


def test_a_run_whose_disk_fails_ends_with_exit_code_and_words(tmp_path, monkeypatch, capfd):
    from trainers.attempt import train

    def report(spec, folder, reporter):
        reporter.event(Phase, name="training")
        return train.FINISHED

    monkeypatch.setattr(train, "report_outcome", report)
    monkeypatch.setattr(train, "set_up", lambda: None)
    refusing(monkeypatch, "fsync", errno.EIO)
    assert train.run_training(None, tmp_path / "run") == train.FAILED
    assert capfd.readouterr().err.strip().endswith("the spool cannot be stored: Input/output error")
