import fcntl
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from lab.lib.child_environment import TRAINER, environment_for
from lab.supervision.supervisor import trainer_process
from lab.supervision.supervisor.resources import ResourceSampler
from lab.supervision.supervisor.trainer_process import AdoptedTrainer, Trainer

HOLDER = """
import fcntl, os, sys, time
file = open(sys.argv[1], "a+")
fcntl.flock(file, fcntl.LOCK_EX)
print(os.getpid(), file=file, flush=True)
print(flush=True)
time.sleep(60)
"""


def test_the_command_is_a_list_that_names_the_spec(tmp_path: Path) -> None:
    assert trainer_process.build_trainer_command(tmp_path) == [sys.executable, "-m", "trainers", "run", str(tmp_path / "run.json")]


def test_the_environment_keeps_what_training_needs_and_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (
        "SECRET_KEY",
        "DATABASE_URL",
        "REDIS_URL",
        "PGPASSWORD",
        "DJANGO_SETTINGS_MODULE",
        "CELERY_BROKER_URL",
        "HF_HUB_OFFLINE",
        "HF_TOKEN",
    ):
        monkeypatch.setenv(name, "1")
    found = environment_for(TRAINER, PYTHONUNBUFFERED="1")
    assert not {"SECRET_KEY", "DATABASE_URL", "REDIS_URL", "PGPASSWORD", "DJANGO_SETTINGS_MODULE", "CELERY_BROKER_URL"} & set(found)
    assert (found["HF_HUB_OFFLINE"], found["HF_TOKEN"], found["PYTHONUNBUFFERED"]) == ("1", "1", "1")


@pytest.mark.feature(83)
def test_the_spec_is_written_once_and_never_changed(tmp_path: Path) -> None:
    trainer_process.write_spec(tmp_path / "run", {"a": "ü"})
    trainer_process.write_spec(tmp_path / "run", {"a": "other"})
    assert json.loads((tmp_path / "run" / "run.json").read_text()) == {"a": "ü"}
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["run.json"]


def test_a_trainer_is_found_by_its_lock_and_killed(tmp_path: Path) -> None:
    assert not trainer_process.is_locked(tmp_path)
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, str(tmp_path / "lock")], stdout=subprocess.PIPE, start_new_session=True)
    assert holder.stdout
    holder.stdout.readline()
    assert trainer_process.is_locked(tmp_path)
    assert trainer_process.lock_holder(tmp_path) == holder.pid
    AdoptedTrainer(tmp_path).kill()
    assert holder.wait(60) == -9
    holder.stdout.close()
    assert not trainer_process.is_locked(tmp_path)
    assert trainer_process.lock_holder(tmp_path) is None


def test_a_number_in_the_lock_that_is_now_somebody_else_is_not_killed(tmp_path: Path) -> None:
    (tmp_path / "lock").write_text(str(os.getppid()))
    with (tmp_path / "lock").open("a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert trainer_process.is_locked(tmp_path)
        assert trainer_process.lock_holder(tmp_path) is None
        AdoptedTrainer(tmp_path).kill()


def test_load_and_memory_of_the_whole_process_tree_are_measured(tmp_path: Path) -> None:
    busy = "x = bytearray(80 << 20)\nfor i in range(0, len(x), 4096): x[i] = 1\nwhile True: pass"
    trainer = Trainer(["bash", "-c", f"{sys.executable} -c '{busy}' & wait"], tmp_path / "log")
    try:
        sampler = ResourceSampler(trainer.pid)
        deadline = time.monotonic() + 60
        while sampler.peak_memory < 80 << 20 and time.monotonic() < deadline:
            sampler.due = 0.0
            sampler.look()
            time.sleep(0.1)
        sampler.taken()
        assert sampler.summary() == {}
        time.sleep(0.3)
        sampler.due = 0.0
        sampler.look()
        sampler.look()
        assert len(sampler.samples) == 1
        assert sampler.summary()["system/memory_bytes"] > 80 << 20
        assert sampler.summary()["system/cpu_percent"] > 5
    finally:
        trainer.kill()
    assert not trainer.alive()
    sampler.due = 0.0
    sampler.look()
    assert len(sampler.samples) == 1
