"""Somebody's own TRL script, the real client, a real server and the real database: what was trained is what the lab shows."""

import json
from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from lab.edges.api import tokens
from lab.rollouts.trajectories.models import Rollout
from lab.teams.accounts.models import Team, User
from lab.training.runs import metrics
from lab.training.runs.models import Run, Status
from tests.lab.supervisor.spools import assert_database_equals_spool, finished, started, steps, write
from trainers.__main__ import main
from trainers.contract import arrays
from trainers.contract.spool import SPOOL
from trainers.outside.client import LabClient, LabError
from trainers.outside.sending import Sender, ensure_run_opening

pytestmark = pytest.mark.django_db(transaction=True)
OPENING = {"name": "elsewhere", "trainer": "grpo", "policy": "p", "task": "t", "total_steps": 10, "config": {}}


@pytest.fixture
def secret(team: Team, owner: User) -> str:
    return tokens.create_access_token(team, owner, "my script", ["runs.send"], None)[1]


@pytest.fixture
def client_of(live_server: Any, secret: str) -> LabClient:
    return LabClient(live_server.url, secret)


def kept(folder: Path, *events: Any) -> Path:
    ensure_run_opening(folder, OPENING)
    write(folder, list(events))
    return folder


def test_everything_arrives_once_however_often_it_is_sent(client_of: LabClient, tmp_path: Path) -> None:
    folder = kept(tmp_path / "run", started(), *steps(1, 2))
    assert Sender(client_of, folder).finish(20)
    run = Run.across_teams.get()
    assert (run.name, run.status, run.step) == ("elsewhere", Status.RUNNING, 2)
    late = Sender(client_of, folder)
    late.offset = 0  # as after an answer that never came
    assert late.finish(20)
    write(folder, [*steps(3, 3), finished()])
    assert Sender(client_of, folder).finish(20)
    run.refresh_from_db()
    assert (run.status, run.step) == (Status.FINISHED, 3)
    assert (run.folder / SPOOL).read_bytes() == (folder / SPOOL).read_bytes()
    assert_database_equals_spool(run)


def test_the_command_sends_what_was_kept_while_the_lab_was_away(
    live_server: Any, secret: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = kept(tmp_path / "run", started(), *steps(1, 1), finished())
    monkeypatch.setenv("LAB_TOKEN", secret)
    monkeypatch.setenv("LAB_URL", "http://127.0.0.1:9")  # nobody listens
    assert main(["send", str(folder), "--wait", "0"]) == 1
    assert "try again later" in capsys.readouterr().err
    monkeypatch.setenv("LAB_URL", live_server.url)
    assert main(["send", str(folder)]) == 0
    run = Run.across_teams.get()
    assert f"/t/{run.team.slug}/runs/{run.pk}/" in capsys.readouterr().out
    assert run.status == Status.FINISHED
    assert main(["send", str(tmp_path)]) == 2


def test_a_token_that_may_not_is_refused_in_words_and_nothing_is_tried_again(live_server: Any, team: Team, owner: User, tmp_path: Path) -> None:
    folder = kept(tmp_path / "run", started())
    reader = tokens.create_access_token(team, owner, "reader", ["runs.read"], None)[1]
    for secret, words in ((reader, "runs.send"), ("lab_nobody00_x", "401")):
        with pytest.raises(LabError, match=words) as refused:
            Sender(LabClient(live_server.url, secret), folder).finish(20)
        assert not refused.value.temporary
    assert not Run.across_teams.exists()


def test_another_teams_token_does_not_find_the_run(client_of: LabClient, live_server: Any, stranger: User, tmp_path: Path) -> None:
    folder = kept(tmp_path / "run", started())
    assert Sender(client_of, folder).finish(20)
    key = json.loads((folder / "outside.json").read_text())["key"]
    theirs = tokens.create_access_token(stranger.memberships.get().team, stranger, "theirs", ["runs.send"], None)[1]
    with pytest.raises(LabError, match="No run was started with this key"):
        LabClient(live_server.url, theirs).send(key, 0, b"")


def test_a_line_that_is_no_event_is_named(client_of: LabClient, tmp_path: Path) -> None:
    folder = kept(tmp_path / "run", started())
    with (folder / SPOOL).open("ab") as file:
        file.write(b"garbage\n")
    with pytest.raises(LabError, match=r"body\.2: line 2 is not an event"):
        Sender(client_of, folder).finish(20)


@pytest.mark.parametrize(("url", "secret"), [("", "x"), ("file:///etc/passwd", "x"), ("http://", "x"), ("http://127.0.0.1:1", "")])
def test_a_missing_address_or_token_is_said_before_anything_trains(url: str, secret: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LAB_URL", raising=False)
    monkeypatch.delenv("LAB_TOKEN", raising=False)
    with pytest.raises(LabError, match="LAB_"):
        LabClient(url, secret)


@pytest.mark.feature(80)
@pytest.mark.training
def test_a_trl_script_with_two_more_lines_is_a_run_with_rollouts_tokens_and_metrics(
    client_of: LabClient, tmp_path: Path, client: Client, owner: User
) -> None:
    from tests.lab.outside.script import grpo_trainer
    from trainers.outside import watch

    trainer = grpo_trainer(tmp_path / "output", steps=3)
    watch(trainer, name="my GRPO", folder=tmp_path / "kept", client=client_of, task="count")
    sampled = trainer._generate_single_turn

    def told(*args: Any, **rest: Any) -> Any:
        """As a sampler that reports log-probabilities of its own, vLLM for one."""
        ids, _ = sampled(*args, **rest)
        return ids, [[-1.0] * len(one) for one in ids]

    trainer._generate_single_turn = told
    trainer.train()
    run = Run.across_teams.get()
    assert (run.name, run.status, run.step, run.total_steps, run.trainer) == ("my GRPO", Status.FINISHED, 3, 3, "grpo")
    assert_database_equals_spool(run)
    logged = {entry["step"]: entry["reward"] for entry in trainer.state.log_history if "reward" in entry}
    reward = metrics.read_metric_series(run.pk)["reward"]
    assert dict(zip(reward.steps.tolist(), reward.values.tolist(), strict=True)) == pytest.approx(logged)
    stored = list(Rollout.objects.filter(run=run).select_related("tokens").order_by("step", "group", "sample"))
    assert len(stored) == 3 * 8
    for one in stored:
        assert one.reward == pytest.approx(len(one.completion) / 100)
        assert one.length > 0
        entropies, logprobs = arrays.unpack_array(bytes(one.tokens.entropies)), arrays.unpack_array(bytes(one.tokens.logprobs))
        assert len(entropies) == len(logprobs) == one.length
        assert arrays.unpack_array(bytes(one.tokens.sampler_logprobs)).tolist() == [-1.0] * one.length
        assert one.mean_entropy == pytest.approx(float(entropies.astype(float).mean()), abs=1e-2)
    groups = {(one.step, one.group) for one in stored}
    assert len(groups) == 3 * 2
    for step, group in groups:
        assert sum(one.advantage for one in stored if (one.step, one.group) == (step, group)) == pytest.approx(0, abs=1e-4)
    client.force_login(owner)
    bare = grpo_trainer(tmp_path / "bare", steps=3)
    bare.train()
    for name in ("loss", "grad_norm", "entropy"):  # watching changes nothing
        assert [one[name] for one in bare.state.log_history if name in one] == [one[name] for one in trainer.state.log_history if name in one]
    for page in ("", "rollouts/", "config/", "logs/", "doctor/", "groups/"):
        assert client.get(f"/runs/{run.pk}/{page}").status_code == 200, page
