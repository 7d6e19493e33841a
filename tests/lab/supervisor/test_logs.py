from pathlib import Path

import pytest

from lab.supervision.supervisor import logs
from lab.teams.accounts.models import Team
from lab.training.runs.models import LogChunk, Run
from tests.lab.supervisor.spools import make_run


@pytest.fixture
def run(team: Team) -> Run:
    run = make_run(team, attempt=1)
    run.folder.mkdir(parents=True)
    return run


def append(run: Run, data: bytes) -> None:
    with logs.log_file(run.folder, run.attempt).open("ab") as file:
        file.write(data)


def stored(run: Run) -> list[str]:
    return list(LogChunk.objects.filter(run=run).values_list("text", flat=True))


def test_whole_lines_are_shipped_and_a_begun_one_waits(run: Run) -> None:
    append(run, b"one\ntwo\nthr")
    assert logs.ship_log_piece(run, 1)
    assert not logs.ship_log_piece(run, 1)
    append(run, b"ee\n")
    assert logs.ship_log_piece(run, 1)
    append(run, b"end")
    assert logs.ship_log_piece(run, 1, final=True)
    assert stored(run) == ["one\ntwo\n", "three\n", "end"]
    assert Run.across_teams.get(pk=run.pk).log_ingested == 17


def test_bytes_that_are_no_text_are_visible(run: Run) -> None:
    append(run, "naïve \0".encode() + b"\xff\xfe\n")
    logs.ship_log_piece(run, 1)
    assert stored(run) == ["naïve ␀\ufffd\ufffd\n"]


def test_a_line_longer_than_a_piece_is_shipped_in_pieces(run: Run) -> None:
    append(run, b"x" * (2 * logs.PIECE + 5))
    while logs.ship_log_piece(run, 1, final=True):
        pass
    assert "".join(stored(run)) == "x" * (2 * logs.PIECE + 5)


def test_two_shippers_store_a_piece_once(run: Run) -> None:
    append(run, b"one\n")
    other = Run.across_teams.get(pk=run.pk)
    assert logs.ship_log_piece(run, 1)
    assert not logs.ship_log_piece(other, 1)
    assert stored(run) == ["one\n"]
    assert other.log_ingested == 4


def test_a_log_without_end_is_cut_with_a_word(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "MAX_BYTES", 10)
    append(run, b"0123456789\n")
    logs.ship_log_piece(run, 1)
    append(run, b"more\n")
    assert not logs.ship_log_piece(run, 1)
    assert "the rest is in attempt-1.log" in stored(run)[0]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('Traceback (most recent call last):\n  File "a.py", line 1, in b\n    c()\n    ^^^\nValueError: no\n\n', "ValueError: no"),
        ("10%\r50%\r100%\n", "100%"),
        ("\x1b[31merror\x1b[0m: bad\x07\n   \n", "error: bad"),
        ("", ""),
    ],
)
def test_the_last_words_are_the_last_line_that_says_something(tmp_path: Path, text: str, expected: str) -> None:
    (tmp_path / "x.log").write_text(text)
    assert logs.last_words(tmp_path / "x.log") == expected


def test_there_are_no_last_words_without_a_log(tmp_path: Path) -> None:
    assert logs.last_words(tmp_path / "none.log") == ""
