"""Ranks as the lab starts them, by the command line: one is killed, the attempt says which, and the run goes on from its checkpoint."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from tests.trainers.conftest import events_in, fork_ranks, make_spec
from trainers.attempt import rank_processes, train
from trainers.contract.events import AttemptFinished, AttemptStarted, Metrics

pytestmark = pytest.mark.training

ROOT = Path(__file__).parents[2]


def start_run(folder, out):
    return subprocess.Popen([sys.executable, "-m", "trainers", "run", str(folder / "run.json")], cwd=ROOT, stdout=out, stderr=subprocess.STDOUT)


def wait_for_step(process, folder, step):
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and process.poll() is None:
        if (folder / "events.jsonl").exists() and any(isinstance(event, Metrics) and event.step >= step for event in events_in(folder)):
            return
        time.sleep(0.02)
    pytest.fail(f"exit code {process.poll()} before step {step}")


def find_ranks(process):
    """Process of each rank, by its number."""
    return {int(child.environ()["RANK"]): child for child in psutil.Process(process.pid).children() if "rank" in child.cmdline()}


def test_a_killed_rank_ends_the_attempt_with_its_name_and_the_run_goes_on(tmp_path, monkeypatch):
    folder = tmp_path / "run"
    folder.mkdir()
    spec = make_spec(folder, resources__processes=2, limits={"save_every": 1}, training__max_steps=30)
    (folder / "run.json").write_text(spec.model_dump_json())
    with (tmp_path / "log").open("w") as out, start_run(folder, out) as process:
        try:
            wait_for_step(process, folder, 2)
            found = find_ranks(process)
            struck = time.time()
            found[1].send_signal(signal.SIGKILL)
            assert process.wait(30) == train.FAILED, (tmp_path / "log").read_text()[-3000:]
        finally:
            process.kill()
    last = events_in(folder)[-1]
    assert (last.outcome, last.error) == ("failed", "rank 1 was killed by SIGKILL")
    assert last.time - struck < 5
    assert not any(one.is_running() for one in found.values())

    fork_ranks(monkeypatch)
    assert rank_processes.run_on_ranks(spec, folder) == train.FINISHED
    starts = [event for event in events_in(folder) if isinstance(event, AttemptStarted)]
    assert [event.attempt for event in starts] == [1, 2]
    assert starts[1].from_step >= 1
    assert [event.outcome for event in events_in(folder) if isinstance(event, AttemptFinished)] == ["failed", "finished"]


def test_an_end_that_was_being_written_when_its_rank_was_killed_is_not_read(tmp_path):
    first, killed = (rank_processes.Ended(rank, 1.0 + rank, "KeyError: 'x'", ()) for rank in (0, 1))
    rank_processes.write_end(tmp_path, first)
    rank_processes.write_end(tmp_path, killed)
    (tmp_path / "ended-1.json").rename(tmp_path / ".ended-1")
    (tmp_path / ".ended-1").write_text("")
    assert rank_processes.read_ends(tmp_path) == [first]
    assert rank_processes.write_end(tmp_path / "gone", first) == train.FAILED  # the parent has ended


def test_a_rank_without_room_to_say_why_it_ended_says_so_by_its_exit_code(tmp_path):
    (tmp_path / ".ended-1").symlink_to("/dev/full")
    assert rank_processes.write_end(tmp_path, rank_processes.Ended(1, 1.0, "OSError: no room", ())) == rank_processes.DISK_FULL
    assert rank_processes.read_ends(tmp_path) == []
