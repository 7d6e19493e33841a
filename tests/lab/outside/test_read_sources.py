"""Files of other frameworks, the real command, a real server: the run is on the lab's pages, and each page says what the source did not record."""

import threading
import time
from pathlib import Path
from typing import Any

import pytest

from lab.edges.api import tokens
from lab.rollouts.trajectories.models import Rollout
from lab.teams.accounts.models import Team, User
from lab.training.runs.models import Run, Status
from tests.lab.supervisor.spools import assert_database_equals_spool
from tests.trainers.outside_readers.reading import verl_row, write_lines, write_verl_step
from trainers.__main__ import main
from trainers.outside.client import LabClient
from trainers.outside.source_sending import SourceRequest, send_sources

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def lab(live_server: Any, team: Team, owner: User, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LabClient:
    secret = tokens.create_access_token(team, owner, "reader", ["runs.send"], None)[1]
    monkeypatch.setenv("LAB_URL", live_server.url)
    monkeypatch.setenv("LAB_TOKEN", secret)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return LabClient()


def test_the_command_reads_sends_and_goes_on_where_it_ended(lab: LabClient, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    dump = tmp_path / "dump"
    write_verl_step(dump, 1)
    write_verl_step(dump, 2)
    assert main(["send", "--from", "verl", str(dump)]) == 0
    run = Run.across_teams.get()
    assert (run.name, run.status, run.step, run.rollouts) == ("dump (verl)", Status.FINISHED, 2, 8)
    assert f"/runs/{run.pk}/" in capsys.readouterr().out
    write_verl_step(dump, 3)
    write_lines(dump / "2.jsonl", verl_row(2, 0, "one more"), mode="a")
    assert main(["send", "--from", "auto", str(dump)]) == 0
    assert main(["send", "--from", "auto", str(dump)]) == 0  # nothing new
    run.refresh_from_db()
    assert (Run.across_teams.count(), run.status, run.step, run.rollouts) == (1, Status.FINISHED, 3, 13)
    assert Rollout.objects.filter(run=run, length=None, finish_reason="").count() == 13
    assert_database_equals_spool(run)


def test_what_cannot_be_read_is_said_and_makes_no_run(lab: LabClient, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (
        ["--from", "verl", str(tmp_path)],
        ["--from", "nonsense", str(tmp_path)],
        ["--from", "verl", "a", "b"],
        [],
        [str(tmp_path), "--from", "verl"],
    ):
        assert main(["send", *arguments]) == 2
        assert capsys.readouterr().err
    assert not Run.across_teams.exists()


def test_a_dump_that_grows_is_in_the_lab_within_two_seconds(lab: LabClient, tmp_path: Path) -> None:
    dump, said = tmp_path / "dump", list[str]()
    write_verl_step(dump, 1, 1, 1)
    over = threading.Event()
    codes = list[int]()
    request = SourceRequest([("verl", dump)], follow=True, wait=20)
    thread = threading.Thread(target=lambda: codes.append(send_sources(request, lab, said.append, over)))
    thread.start()
    try:
        took = []
        for number in range(2, 5):
            began = time.monotonic()
            write_lines(dump / f"{number}.jsonl", verl_row(number))
            wait_until(lambda count=number: Rollout.across_teams.count() == count)
            took.append(time.monotonic() - began)
        assert max(took) < 2, took
        assert Run.across_teams.get().status == Status.RUNNING
    finally:
        over.set()
        thread.join(30)
    assert codes == [0]
    run = Run.across_teams.get()
    assert (run.status, run.rollouts) == (Status.STOPPED, 4)
    assert any("the run's page" in words for words in said)
    assert_database_equals_spool(run)


def wait_until(holds: Any, seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)
