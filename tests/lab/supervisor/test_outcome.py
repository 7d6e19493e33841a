from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lab.supervision.supervisor.attempt_outcome import AttemptEnding, is_disk_full, judge_outcome, last_event
from lab.training.runs.models import Status
from tests.lab.supervisor.spools import finished, rollout, write


def ending(tmp_path: Path, code: int | None, outcome: str = "", error: str = "", log: str = "", **fields: Any) -> AttemptEnding:
    (tmp_path / "attempt-1.log").write_text(log)
    return AttemptEnding(code, finished(outcome=outcome, error=error) if outcome else None, tmp_path / "attempt-1.log", **fields)


@pytest.mark.parametrize(
    ("code", "outcome", "status"),
    [
        (0, "finished", Status.FINISHED),
        (0, "", Status.FAILED),  # whatever ended it, the run's own spool does not say that it is done
        (None, "finished", Status.FINISHED),
        (3, "stopped", Status.STOPPED),
        (3, "", Status.STOPPED),
        (None, "stopped", Status.STOPPED),
        (1, "failed", Status.FAILED),
        (0, "failed", Status.FAILED),
        (1, "", Status.FAILED),
        (1, "finished", Status.FAILED),
        (2, "", Status.FAILED),
        (-9, "", Status.FAILED),
        (None, "", Status.FAILED),
    ],
)
def test_exit_code_and_last_event_decide(tmp_path: Path, code: int | None, outcome: str, status: Status) -> None:
    assert judge_outcome(ending(tmp_path, code, outcome))[0] == status


def test_the_reason_is_the_event_else_the_last_line(tmp_path: Path) -> None:
    assert judge_outcome(ending(tmp_path, 1, "failed", "no pairs were found", "x"))[1] == "no pairs were found"
    assert judge_outcome(ending(tmp_path, 1, log="ValueError: no\n"))[1] == "ValueError: no"
    assert judge_outcome(ending(tmp_path, 7))[1] == "the trainer ended with exit code 7 and said nothing"


def test_a_full_disk_is_named_with_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not is_disk_full(tmp_path)
    assert not is_disk_full(tmp_path / "gone")
    monkeypatch.setattr("shutil.disk_usage", lambda folder: SimpleNamespace(free=4096))
    assert is_disk_full(tmp_path)
    status, reason = judge_outcome(ending(tmp_path, 1, is_disk_full=True))
    assert status == Status.FAILED
    assert reason.startswith("the trainer ended with exit code 1 and said nothing; the disk of the run folder is full")
    assert judge_outcome(ending(tmp_path, 0, "finished", is_disk_full=True)) == (Status.FINISHED, "")


def test_a_signal_is_said_in_words(tmp_path: Path) -> None:
    assert "ran out of memory (it was seen using 3.0 GiB)" in judge_outcome(ending(tmp_path, -9, peak_memory=3 * 2**30))[1]
    assert "SIGSEGV, a crash in native code" in judge_outcome(ending(tmp_path, -11))[1]
    assert "signal 99" in judge_outcome(ending(tmp_path, -99))[1]


def test_a_kill_of_ours_is_a_stop_but_not_of_a_trainer_that_had_finished(tmp_path: Path) -> None:
    assert judge_outcome(ending(tmp_path, -9, killed="killed")) == (Status.STOPPED, "killed")
    assert judge_outcome(ending(tmp_path, 0, "finished", killed="killed"))[0] == Status.FINISHED


def test_a_stop_nobody_asked_for_says_so(tmp_path: Path) -> None:
    assert "by itself" in judge_outcome(ending(tmp_path, 3, "stopped"))[1]
    assert judge_outcome(ending(tmp_path, 3, "stopped", stop_requested=True))[1] == ""


def test_the_last_event_is_that_of_the_last_whole_line(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    assert last_event(path) is None
    write(tmp_path, [rollout(1), finished()], tail=b'{"event":"rollout"')
    assert last_event(path) == finished()
