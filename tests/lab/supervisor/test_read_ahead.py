"""Lines of a spool that are read ahead are those that would have been read then."""

import threading
from pathlib import Path

import pytest

from lab.supervision.supervisor import read_ahead
from lab.supervision.supervisor.read_ahead import ReadAhead
from lab.supervision.supervisor.stored_events import read_stored_lines
from tests.lab.supervisor.spools import rollout
from trainers.contract import spool

LIMIT = 2000


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "events.jsonl"
    path.write_bytes(b"".join(spool.encoder.encode(rollout(step)) + b"\n" for step in range(40)))
    return path


def test_every_line_comes_once_in_order(path: Path) -> None:
    ahead, offset, lines = ReadAhead(), 0, []
    while read := ahead.take(path, offset, LIMIT):
        lines += read
        offset = read[-1].end
        ahead.start(path, offset, LIMIT)
    assert lines == list(read_stored_lines(path, 0, limit=2**30))
    assert len(lines) == 40


def test_what_was_read_ahead_is_not_read_again(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ahead = ReadAhead()
    first = ahead.take(path, 0, LIMIT)
    ahead.start(path, first[-1].end, LIMIT)
    expected = list(read_stored_lines(path, first[-1].end, LIMIT))
    assert ahead.reading is not None
    ahead.reading.join()
    monkeypatch.setattr(read_ahead, "read_stored_lines", lambda *_: pytest.fail("read again"))
    assert ahead.take(path, first[-1].end, LIMIT) == expected


@pytest.mark.parametrize("wanted", ["offset", "limit", "path"])
def test_other_lines_than_those_read_ahead_are_read_anew(path: Path, tmp_path: Path, wanted: str) -> None:
    ahead = ReadAhead()
    second = ahead.take(path, 0, LIMIT)[-1].end
    ahead.start(path, second, LIMIT)
    other = tmp_path / "other.jsonl"
    other.write_bytes(spool.encoder.encode(rollout(99)) + b"\n")
    asked = {"offset": (path, 0, LIMIT), "limit": (path, second, 2 * LIMIT), "path": (other, 0, LIMIT)}[wanted]
    assert ahead.take(*asked) == list(read_stored_lines(*asked))


def test_the_end_of_a_spool_is_not_read_ahead(path: Path) -> None:
    """A line that is still being written would be missing."""
    ahead = ReadAhead()
    size = path.stat().st_size
    ahead.start(path, size - LIMIT + 1, LIMIT)
    assert ahead.reading is None


def test_a_spool_that_cannot_be_read_ahead_is_read_when_its_lines_are_wanted(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ahead = ReadAhead()
    with monkeypatch.context() as broken:
        broken.setattr(read_ahead, "read_stored_lines", lambda *_: (_ for _ in ()).throw(OSError("busy")))
        broken.setattr(threading, "excepthook", lambda _: None)
        ahead.start(path, 0, LIMIT)
        assert ahead.reading is not None
        ahead.reading.join()
    assert ahead.take(path, 0, LIMIT) == list(read_stored_lines(path, 0, LIMIT))
