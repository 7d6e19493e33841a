"""A run's log: terminal sequences, progress bars, hostile text; read on, searched and downloaded."""

from typing import Any

import pytest
from django.test import Client

from lab.teams.accounts.models import Team
from lab.training.runs import log_text
from lab.training.runs.log_text import TextStyle, collapse_progress_line, parse_styled_spans
from lab.training.runs.models import LogChunk, Run, Status
from tests.lab.supervisor.spools import make_run


@pytest.fixture
def run(team: Team) -> Run:
    return make_run(team, status=Status.RUNNING)


def logged(run: Run, *texts: str, attempt: int = 1) -> None:
    offset = 0
    for text in texts:
        LogChunk.objects.create(run=run, attempt=attempt, offset=offset, text=text)
        offset += len(text.encode())


def shown(client: Client, run: Run, **query: Any) -> str:
    response = client.get(f"/runs/{run.pk}/logs/", query)
    assert response.status_code == 200
    return response.content.decode()


def after(client: Client, run: Run, cursor: str) -> dict[str, Any]:
    answer: dict[str, Any] = client.get(f"/runs/{run.pk}/logs/", {"attempt": 1, "after": cursor}).json()
    return answer


@pytest.mark.feature(19)
def test_colours_become_classes_and_other_sequences_vanish() -> None:
    line = "\x1b[31;1mred\x1b[0m plain \x1b]0;owned\x07\x1b[2J\x1b]8;;http://x\x1b\\link\x1b[38;5;200m!\x1b[m"
    assert parse_styled_spans(line, TextStyle()) == [("ansi-bold ansi-red", "red"), ("", " plain "), ("", "link"), ("", "!")]


def test_a_progress_bar_shows_where_it_ended() -> None:
    assert collapse_progress_line("10%\r50%\r100%") == "100%"
    assert collapse_progress_line("windows line\r") == "windows line"


def test_controls_and_bidirectional_marks_in_a_log_are_named() -> None:
    assert parse_styled_spans("a\x07b\u202ec\x9b", TextStyle()) == [("", "a␇b⟨U+202E⟩c⟨U+009B⟩")]


def test_a_line_of_a_million_characters_is_cut_with_a_note() -> None:
    [(_, text)] = parse_styled_spans("x" * 1_000_000, TextStyle())
    assert len(text) < log_text.MAX_LINE + 100
    assert "980,000 more characters" in text


def test_escapes_that_never_end_take_no_time() -> None:
    assert parse_styled_spans("\x1b]" * 20_000, TextStyle()) == []
    assert parse_styled_spans("\x1b[" + "1;" * 50_000, TextStyle())


def test_reading_on_gives_every_line_once_however_the_log_was_cut(as_owner: Client, run: Run) -> None:
    text = "".join(f"line {index}: \x1b[32mé🦊\x1b[0m\n" for index in range(50))
    seen: list[Any] = []
    cursor, open_line = "", False
    for start in range(0, len(text), 37):
        LogChunk.objects.create(run=run, attempt=1, offset=len(text[:start].encode()), text=text[start : start + 37])
        more = after(as_owner, run, cursor)
        if open_line and more["lines"]:
            seen.pop()
        seen += more["lines"]
        cursor, open_line = more["cursor"], more["open_line"]
    assert ["".join(text for _, text in line) for line in seen] == [f"line {index}: é🦊" for index in range(50)]


def test_a_notice_stands_where_it_came_and_comes_once(as_owner: Client, run: Run) -> None:
    LogChunk.objects.create(run=run, attempt=1, offset=0, text="before, no newline")
    LogChunk.objects.create(run=run, attempt=1, offset=18, text="12 rows were skipped", notice=True)
    first = after(as_owner, run, "")
    assert first["lines"] == [[["", "before, no newline"]], [["notice", "12 rows were skipped"]]]
    LogChunk.objects.create(run=run, attempt=1, offset=18, text="after\n")
    assert after(as_owner, run, first["cursor"])["lines"] == [[["", "after"]]]


@pytest.mark.parametrize("cursor", ["x", "1.2", "-1.0.0", "9" * 40, "1.1.1.1", "٣.٣.٣"])
def test_a_mangled_log_cursor_starts_again_from_the_tail(cursor: str, as_owner: Client, run: Run) -> None:
    logged(run, "one\ntwo\n")
    assert len(after(as_owner, run, cursor)["lines"]) == 2


def test_each_attempt_has_its_own_log_and_the_newest_is_shown_first(as_owner: Client, run: Run) -> None:
    logged(run, "of the first\n", attempt=1)
    logged(run, "of the second\n", attempt=2)
    assert "of the second" in shown(as_owner, run)
    assert "of the first" in shown(as_owner, run, attempt="1")
    assert "of the second" in shown(as_owner, run, attempt="77")


def test_searching_finds_lines_by_number_whatever_the_case(as_owner: Client, run: Run) -> None:
    logged(run, "".join(f"step {index}\n" for index in range(100)), "Error: \x1b[31mboom\x1b[0m\n")
    found, more = log_text.search_log_lines(run, 1, "ERROR: B")
    assert [(number, "".join(text for _, text in line)) for number, line in found] == [(101, "Error: boom")]
    assert not more
    page = shown(as_owner, run, q="<b>")
    assert "No line contains “&lt;b&gt;”" in page


def test_a_log_is_downloaded_as_it_was_written(as_owner: Client, run: Run) -> None:
    logged(run, "\x1b[31mred\x1b[0m ", "<script>\n")
    response = as_owner.get(f"/runs/{run.pk}/logs/?attempt=1&download")
    assert b"".join(response.streaming_content) == b"\x1b[31mred\x1b[0m <script>\n"  # type: ignore[attr-defined]
    assert response.headers["Content-Type"] == "text/plain; charset=utf-8"
    assert response.headers["X-Content-Type-Options"] == "nosniff"
    assert response.headers["Content-Disposition"].startswith("attachment")
