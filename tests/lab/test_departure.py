"""Workers that leave by themselves, and workers with several GPUs: what each claims, and when it goes."""

import os
import signal
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError

from lab.lib.processes import wait_for
from lab.supervision.supervisor.run_claims import claim_next_run
from lab.teams.accounts.models import Team
from lab.training.runs.models import Run, Status
from lab.training.runs.process_counts import ONE_PROCESS, read_run_size
from lab.training.runs.wait_reasons import find_waiting_reasons
from lab.training.workers.departure import DeparturePlan, DepartureWatch
from lab.training.workers.gpus import Gpu, describe_gpus
from lab.training.workers.heartbeat import Heartbeat, register_worker
from lab.training.workers.management.commands import worker as worker_command
from lab.training.workers.management.commands.worker import choose_gpus
from lab.training.workers.models import Worker
from lab.watching.queue.forecast import forecast_queues
from lab.watching.usage.ledger import gpus_of
from tests.lab.supervisor.spools import make_run

GIB = 2**30
FOUR = [Gpu(index, "NVIDIA H100", 80 * GIB) for index in range(4)]
Changes = dict[str, Any]


def several(count: int, server_gpus: int = 0) -> Changes:
    training = {"generation": "server", "generation_gpus": server_gpus} if server_gpus else {"generation": "transformers", "generation_gpus": 1}
    return {"spec": {"recipe": "grpo", "resources": {"processes": count}, "training": training}}


def test_gpus_are_chosen_by_number_by_how_many_or_all_that_the_job_has() -> None:
    assert choose_gpus("all", FOUR) == FOUR
    assert choose_gpus("2", FOUR) == FOUR[:2]
    assert [gpu.index for gpu in choose_gpus("2, 0", FOUR)] == [2, 0]
    assert describe_gpus(FOUR) == "4 × NVIDIA H100, 80 GiB"
    assert describe_gpus([FOUR[0], Gpu(1, "NVIDIA L4", 24 * GIB)]) == "NVIDIA H100, 80 GiB + NVIDIA L4, 24 GiB"


def test_the_size_of_a_run_is_its_processes_and_the_gpus_of_its_server() -> None:
    assert read_run_size({}) == read_run_size({"resources": None, "training": {"generation": "colocate", "generation_gpus": 4}}) == ONE_PROCESS
    size = read_run_size(several(2, server_gpus=3)["spec"])
    assert (size.gpus, size.words) == (5, "5 GPUs (3 for its vLLM server)")
    assert size.fits(gpus=5, cpus=1)
    assert not size.fits(gpus=4, cpus=64)
    assert not size.fits(gpus=0, cpus=64)  # without GPUs there is no vLLM server
    assert read_run_size(several(8)["spec"]).fits(gpus=0, cpus=8)  # and the processes share the cores


@pytest.mark.django_db
def test_a_worker_has_the_gpus_that_its_scheduler_gave_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_command, "list_gpus", lambda visible=False: FOUR[:2] if visible else FOUR)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    command = worker_command.Command()
    assert command.take_gpus(None, None) == command.take_gpus(None, "all") == FOUR[:2]
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "0,1"
    assert command.take_gpus("3", None) == [FOUR[3]]
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "3"
    with pytest.raises(CommandError, match="not so many"):
        command.take_gpus(None, "3")


@pytest.mark.django_db
def test_a_worker_that_leaves_by_itself_does_not_wait_for_services_that_are_away(settings: Any, tmp_path: Path) -> None:
    settings.REDIS_URL, settings.STORE_URL = "redis://:hush@127.0.0.1:1/0", f"file://{tmp_path}/file/store"
    (tmp_path / "file").write_text("")
    with pytest.raises(CommandError, match=r"Redis \(REDIS_URL\) cannot be used: .*refused.* The store \(LAB_STORE\) cannot be used") as refused:
        call_command("worker", "--idle-exit", "5")
    assert "hush" not in str(refused.value)
    assert not Worker.objects.exists()


@pytest.mark.django_db
def test_a_run_of_several_processes_waits_for_a_worker_with_as_many_gpus(team: Team) -> None:
    register_worker("small", ["gpu"], FOUR[:1])
    large = register_worker("large", ["gpu"], FOUR)
    assert (large.gpus, large.gpu_memory, gpus_of("large"), gpus_of("small"), gpus_of("nobody")) == (4, 80 * GIB, 4, 1, 0)
    run = make_run(team, **several(3, server_gpus=1))
    other = make_run(team, name="of one process")
    claimed = claim_next_run(str(run.pk), "small")  # the large one's message
    assert claimed is not None
    assert claimed[0] == other
    assert claim_next_run(str(run.pk), "small") is None
    assert find_waiting_reasons([run])[run.pk].why == "queue position 1"
    Worker.objects.filter(pk=large.pk).update(draining=True)
    assert find_waiting_reasons([run])[run.pk].why == "no worker for gpu with 4 GPUs (1 for its vLLM server)"
    assert forecast_queues().waiting[run.pk].unknown == "unknown: no worker for gpu with 4 GPUs (1 for its vLLM server)"
    Worker.objects.filter(pk=large.pk).update(draining=False)
    claimed = claim_next_run(str(run.pk), "large")
    assert claimed is not None
    assert claimed[0] == run


@pytest.mark.django_db
def test_a_worker_for_one_run_takes_no_second(team: Team) -> None:
    worker = register_worker("w", ["gpu"], takes_one=True)
    watch = DepartureWatch(worker, DeparturePlan(after_one=True))
    first, second = make_run(team), make_run(team)
    assert not watch.may_leave()  # it waits for its run
    claimed = claim_next_run(str(first.pk), "w")
    assert claimed is not None
    run, owner = claimed
    assert claim_next_run(str(second.pk), "w") is None
    assert not watch.may_leave()
    assert not watch.may_leave()
    run.end(owner, Status.FAILED, "of the test")
    assert watch.may_leave()
    assert Worker.objects.get().draining
    assert Run.across_teams.get(pk=second.pk).status == Status.QUEUED
    assert register_worker("w2", ["gpu"]).takes_one is False


@pytest.mark.django_db
def test_an_idle_worker_leaves_and_claims_nothing_once_it_has_decided(team: Team) -> None:
    worker = register_worker("w", ["gpu"])
    watch = DepartureWatch(worker, DeparturePlan(idle_seconds=60))
    assert not watch.may_leave()
    run = make_run(team)
    claimed = claim_next_run(str(run.pk), "w")
    assert claimed is not None
    watch.busy_at -= 3600
    assert not watch.may_leave()  # it trains
    assert Run.across_teams.get().end(claimed[1], Status.FINISHED)
    assert not watch.may_leave()  # the time counts from the end of the run
    watch.busy_at -= 61
    assert watch.may_leave()
    Heartbeat(worker).beat()  # knows nothing of it yet
    assert Worker.objects.get().draining
    assert claim_next_run(str(make_run(team).pk), "w") is None


@pytest.mark.django_db
def test_a_worker_leaves_as_if_it_were_told_to() -> None:
    told: list[int] = []
    earlier = signal.signal(signal.SIGTERM, lambda number, frame: told.append(number))
    try:
        watch = DepartureWatch(register_worker("w", ["gpu"]), DeparturePlan(idle_seconds=1))
        watch.busy_at -= 2
        watch.look()
        assert wait_for(lambda: told == [signal.SIGTERM], 10)
        watch.look()
        assert told == [signal.SIGTERM]  # once: a second signal would kill the run
    finally:
        signal.signal(signal.SIGTERM, earlier)
