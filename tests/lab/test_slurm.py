"""A queue whose workers are jobs of a real Slurm: started because a run waits, told to leave before their time is over, gone when nothing comes."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings as lab_settings

from lab.lib.processes import wait_for
from lab.lib.start_commands import StartCommand
from lab.supervision.supervisor.worker_starts import start_wanted_workers
from lab.teams.accounts.models import Team, User
from lab.training.runs.launch import launch_recipe
from lab.training.runs.models import Run, Status
from lab.training.runs.placement import Place
from lab.training.workers.models import Worker, WorkerStart
from tests.lab.slurm_cluster import find_slurm_programs, run_slurm_cluster

SCRIPT = Path(lab_settings.BASE) / "deploy/slurm/worker.sbatch"
PROGRAMS = find_slurm_programs()
SMALL = {"training": {"max_steps": 60, "per_device_train_batch_size": 8}, "evaluation": {"prompts": 0}, "limits": {"save_every": 20}}


def test_the_script_of_a_job_is_one_that_bash_reads_and_leaves_time_to_save() -> None:
    assert subprocess.run(["bash", "-n", SCRIPT], check=False).returncode == 0
    signal = re.search(r"^#SBATCH --signal=B:TERM@(\d+)$", SCRIPT.read_text(), re.MULTILINE)
    assert signal
    assert int(signal[1]) >= lab_settings.STOP_GRACE_SECONDS + 30


@pytest.mark.training
@pytest.mark.skipif(
    PROGRAMS is None, reason="no slurmctld here: install it, or unpack it and name the folder in SLURM_ROOT (tests/lab/slurm_cluster.py)"
)
def test_a_run_that_waits_gets_a_job_and_goes_on_in_the_next_one(
    team: Team, owner: User, process_env: Any, tmp_path: Path, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = tmp_path / "worker.env"
    environment.write_text("".join(f"{name}={shlex.quote(value)}\n" for name, value in process_env.items() if name.isidentifier()))
    monkeypatch.setenv("LAB_ENV_FILE", str(environment))
    with run_slurm_cluster(PROGRAMS or {}, tmp_path / "slurm") as cluster:
        for name in ("SLURM_CONF", "LD_LIBRARY_PATH"):
            monkeypatch.setenv(name, cluster.environment[name])
        submit = [cluster.programs["sbatch"], "--cpus-per-task=1", "--mem=0", f"--output={tmp_path}/%j.log", str(SCRIPT)]
        settings.WORKER_STARTS = {"slurm": StartCommand("slurm", tuple(submit), 1, environment=("LAB_ENV_FILE",))}
        (run,) = launch_recipe(team, owner, "grpo", SMALL, place=Place(queue="slurm"))  # type: ignore[arg-type]

        first = start_job()
        assert wait_for(lambda: Run.across_teams.get().step >= 3, 120), (tmp_path / f"{first}.log").read_text()
        assert Worker.objects.get().name == f"slurm-{first}"
        start_wanted_workers()
        assert WorkerStart.objects.count() == 1  # its worker came, and the run has it
        cluster.call("scancel", "--signal=TERM", "--batch", first)  # what Slurm sends before the time is over
        assert wait_for(lambda: Run.across_teams.get().status == Status.QUEUED, 60)
        assert wait_for(lambda: not cluster.list_jobs(), 60)

        second = start_job()
        assert wait_for(lambda: Run.across_teams.get().status == Status.FINISHED, 180), (tmp_path / f"{second}.log").read_text()
        run.refresh_from_db()
        assert (run.step, run.attempt, run.samples.current().count()) == (60, 2, run.rollouts)
        assert cluster.list_jobs() == {second: "RUNNING"}  # it waits for another run
        cluster.call("scancel", "--signal=TERM", "--batch", second)
        assert wait_for(lambda: not cluster.list_jobs() and not Worker.objects.exists(), 60)


def start_job() -> str:
    """Its number, as sbatch has said it."""
    start_wanted_workers()
    start = WorkerStart.objects.judged().order_by("-started_at")[0]
    assert start.exit_code == 0, start.output
    return start.output.rpartition(" ")[2]
