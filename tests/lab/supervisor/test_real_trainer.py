"""The supervisor with the real trainer: TRL, torch and the built-in policy."""

import os
import shutil
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.db import connection

from lab.supervision.supervisor import trainer_process
from lab.supervision.supervisor.supervise import run_supervisor
from lab.teams.accounts.models import Team
from lab.training.runs import metrics
from lab.training.runs.models import Run
from tests.lab.supervisor.machines import Machine
from tests.lab.supervisor.spools import assert_database_equals_spool, make_run
from trainers.contract import arrays
from trainers.contract.spec import parse_spec

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.training]

GRPO: dict[str, Any] = {
    "recipe": "grpo",
    "policy": {"kind": "tiny", "cold_start": False},
    "task": {"name": "mini_gsm"},
    "training": {"trainer": "grpo", "max_steps": 12, "per_device_train_batch_size": 16, "num_generations": 8, "max_completion_length": 16},
    "evaluation": {"prompts": 8, "every": 5},
    "limits": {"save_every": 4},
}


def launch(team: Team) -> Run:
    run = make_run(team)
    run.spec = parse_spec({**GRPO, "output": str(run.folder)}).model_dump(mode="json")
    run.save(update_fields=["spec"])
    return run


def in_background(run: Run) -> threading.Thread:
    def work() -> None:
        try:
            run_supervisor(str(run.pk), "here:1")
        finally:
            connection.close()

    thread = threading.Thread(target=work)
    thread.start()
    return thread


def wait_for(run: Run, condition: Callable[[Run], bool]) -> None:
    deadline = time.monotonic() + 240
    while not condition(run):
        assert time.monotonic() < deadline, f"{run.status} {run.reason}"
        time.sleep(0.05)
        run.refresh_from_db()


@pytest.mark.feature(84)
def test_a_real_run_is_killed_resumed_and_stored_exactly(team: Team, run_folders: Path) -> None:
    run = launch(team)
    thread = in_background(run)
    wait_for(run, lambda run: run.step >= 6)
    pid = trainer_process.lock_holder(run.folder)
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    thread.join(30)
    assert_database_equals_spool(run)
    assert (run.status, run.exit_code) == ("failed", -9)
    saved = run.checkpoints.latest("step").step  # 4, or 8 where the kill came late on a busy machine
    assert run.resume()
    assert run_supervisor(str(run.pk), "here:1")
    assert_database_equals_spool(run)
    assert (run.status, run.step, run.attempt) == ("finished", 12, 2)
    assert run.attempts.get(number=2).from_step == saved >= 4
    assert run.samples.current().filter(phase="train").count() == 12 * 16
    assert run.checkpoints.filter(final=True, step=12).exists()
    tokens = run.samples.select_related("tokens").exclude(length=0)[0].tokens
    assert len(arrays.unpack_array(bytes(tokens.ids))) == len(arrays.unpack_array(bytes(tokens.logprobs))) > 0
    names = metrics.list_metric_names(run.pk)
    assert {"reward", "entropy", "loss", "grad_norm", "heldout/reward", "speed/step_seconds"} <= set(names)
    assert metrics.read_metric_series(run.pk, ["reward"])["reward"].steps.tolist() == list(range(1, 13))


def test_a_real_run_goes_on_on_a_machine_that_has_nothing_of_it(team: Team, settings: Any, tmp_path: Path) -> None:
    settings.STORE_URL = f"file://{tmp_path}/store"
    one, two = Machine(settings, tmp_path / "one"), Machine(settings, tmp_path / "two")
    run = launch(team)
    with one.here():
        thread = in_background(run)
        wait_for(run, lambda run: run.step >= 1)
        run.request_stop()
        thread.join(60)
    run.refresh_from_db()
    assert (run.status, run.reason) == ("stopped", "")
    saved = run.step
    shutil.rmtree(one.root)  # the machine is gone, with all it had
    assert run.resume()
    with two.here():
        assert run_supervisor(str(run.pk), "there:1")
    run.refresh_from_db()
    assert (run.status, run.step, run.attempt, run.reason) == ("finished", 12, 2, "")
    assert run.attempts.get(number=2).from_step == saved
    assert run.samples.current().filter(phase="train").count() == 12 * 16
    keys = list(run.samples.current().values_list("step", "phase", "group", "sample"))
    assert len(keys) == len(set(keys))
    assert metrics.read_metric_series(run.pk, ["reward"])["reward"].steps.tolist() == list(range(1, 13))
    assert run.checkpoints.get(final=True).stored_at is not None
