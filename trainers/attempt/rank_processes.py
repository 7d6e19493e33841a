"""The processes of a run that several train: started, watched and ended by the one that was asked to train, the parent.

The parent owns the run folder's lock, the signals and the exit code, and does what has to be done once before they start: cold start, download, the
vLLM server. torch elastic starts the ranks and ends the others when one of them ends. Rank 0 writes the spool while they live, the parent before and
after. A rank dies with the parent; a request to stop reaches the ranks as the file that the parent makes of a signal.
"""

import json
import logging
import os
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch.distributed.elastic.multiprocessing.api import DefaultLogsSpecs
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from trainers.adapters.resumable import clear_partial, list_whole_checkpoints
from trainers.attempt import ranks, train
from trainers.attempt.accelerate_configuration import find_accelerate_file, read_accelerate_environment
from trainers.attempt.context import CHECKPOINTS, Attempt
from trainers.attempt.generation_server import ServerPorts, run_generation_server
from trainers.attempt.ranks import RanksFailed
from trainers.attempt.report import Reporter, SilentReporter
from trainers.attempt.stop import Stopped, StopRequest
from trainers.contract.problems import Problem, SpecError
from trainers.contract.spec import ACCELERATE, RunSpec
from trainers.contract.spool import FULL, SPOOL, SpoolWriter
from trainers.policies import loading as policies

log = logging.getLogger(__name__)

HERE = "127.0.0.1"
SCRATCH = ".ranks"  # folder in the run folder, while they live
ORDERS = "orders.json"
WATCH_SECONDS = 0.2  # between two looks at them
END_SECONDS = 3  # for the others to end when one has ended; then they are killed
TIMED_OUT = ("timed out", "timeout")  # of what torch says when another process does not answer
DISK_FULL = 5  # exit code of a rank that has no room to say why it ended
HUNG_UP = ("closed by peer", "reset by peer", "broken pipe")  # and when another process is gone


@dataclass(frozen=True)
class Orders:
    """What the parent tells the ranks. ``parent``: its process id; ``began``: when it did, seconds of ``time.time``."""

    parent: int
    spec: dict[str, Any]
    folder: str
    policy: str
    attempt: int
    began: float
    command: list[str]
    ports: tuple[int, int] | None = None

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self)))


@dataclass(frozen=True)
class Ended:
    """How a rank ended that did not finish, in its own words; empty where it was told to end."""

    rank: int
    time: float
    error: str
    problems: tuple[dict[str, Any], ...] = ()  # why it refused the run


def run_on_ranks(spec: RunSpec, folder: Path) -> int:
    """Trains until finished or asked to stop, by ``resources.processes`` processes. Returns the exit code of the command line."""
    return train.run_attempt_alone(spec, folder, lead_ranks)


def lead_ranks(spec: RunSpec, folder: Path, reporter: Reporter, stop: StopRequest) -> tuple[int, int]:
    """The parent's attempt. Returns and raises what ``train.attempt_run`` does, and RanksFailed."""
    task = train.find_task(spec)
    train.refuse_missing(spec)
    refuse_missing_gpus(spec)
    if spec.resources.sharding == ACCELERATE:
        read_accelerate_environment(find_accelerate_file(), spec.resources.processes)
    clear_partial(folder / CHECKPOINTS)
    shutil.rmtree(folder / SCRATCH, ignore_errors=True)
    resume = next(iter(list_whole_checkpoints(folder / CHECKPOINTS)[::-1]), None)
    policy = train.resolve_policy_folder(spec, folder, task, reporter, stop, resume)
    with run_generation_server(spec, policy, reporter, stop) as server:
        stop.check()
        ports = (server.ports.port, server.ports.group_port) if server else None
        scratch = folder / SCRATCH
        scratch.mkdir()
        told = spec.model_dump(mode="json")
        Orders(os.getpid(), told, str(folder), str(policy), reporter.attempt, stop.began, sys.argv, ports).write(scratch / ORDERS)
        try:
            with lend_spool(reporter), signals_as_stop_file(stop):
                start_ranks(spec.resources.processes, scratch)
        except ChildFailedError as error:
            raise explain_end(read_ends(scratch), {rank: failure.exitcode for rank, failure in error.failures.items()}, spec) from None
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
    done = train.steps_done(folder)
    return (train.FINISHED if done >= spec.training.max_steps else train.STOPPED), done


def refuse_missing_gpus(spec: RunSpec) -> None:
    """Raises SpecError where the worker has a GPU, but not one for each process. Looked at without touching CUDA, which must not be forked."""
    needed = spec.resources.processes
    gpus = [name for name in os.environ["LAB_WORKER_GPUS"].split(",") if name]
    if spec.device == "cpu" or not torch.cuda.is_available() or len(gpus) >= needed:
        return
    message, fix = (
        f"each process trains on a GPU of its own; this worker has {len(gpus)}",
        f"start a worker with {needed} GPUs (CUDA_VISIBLE_DEVICES)",
    )
    raise SpecError([Problem("resources.processes", needed, message, fix)])


def start_ranks(count: int, scratch: Path) -> None:
    """Returns when all have ended well. Raises ChildFailedError when one has not; the others are gone then, too."""
    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=count,
        run_id=f"{os.getpid()}",
        rdzv_backend="c10d",
        rdzv_endpoint=f"{HERE}:0",
        local_addr=HERE,
        max_restarts=0,
        monitor_interval=WATCH_SECONDS,
        signals_to_handle="SIGHUP,SIGQUIT",  # SIGTERM and SIGINT are requests to stop, which the parent hears
        shutdown_timeout=END_SECONDS,
        logs_specs=DefaultLogsSpecs(log_dir=str(scratch / "elastic")),
        start_method="fork",  # of an entry point that is a function, as in tests
    )
    entry, *arguments = build_rank_entry(scratch / ORDERS)
    elastic_launch(config, entry)(*arguments)


def build_rank_entry(orders: Path) -> list[Any]:
    """What torch elastic starts for each rank, with its arguments."""
    return [sys.executable, "-m", "trainers", "rank", str(orders)]


@contextmanager
def lend_spool(reporter: Reporter) -> Iterator[None]:
    """Rank 0 writes the spool meanwhile: two writers would tear each other's lines."""
    assert isinstance(reporter.writer, SpoolWriter)
    reporter.writer.lend()
    try:
        yield
    finally:
        reporter.writer.take_back()


@contextmanager
def signals_as_stop_file(stop: StopRequest) -> Iterator[None]:
    """SIGTERM and SIGINT make the stop file, which every rank looks for, also one that is only starting. A second SIGINT ends them at once."""

    def heard(number: int, frame: FrameType | None) -> None:
        stop.heard(number, frame)
        stop.file.touch()

    before = {number: signal.signal(number, heard) for number in (signal.SIGTERM, signal.SIGINT)}
    if stop.why:
        stop.file.touch()
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if stop.why.startswith("SIG"):
            stop.file.unlink(missing_ok=True)


def run_rank(orders_file: str) -> int:
    """One of the processes, started by ``start_ranks``. Returns 0 when the run has finished or was stopped and saved."""
    orders_path = Path(orders_file)
    orders = Orders(**json.loads(orders_path.read_text()))
    sys.argv = orders.command
    spec, folder = RunSpec.model_validate(orders.spec), Path(orders.folder)
    try:
        train.set_up()
        use_own_gpu(spec)
        if spec.resources.sharding == ACCELERATE:
            os.environ.update(read_accelerate_environment(find_accelerate_file(), spec.resources.processes))
        ranks.join(on_cpu=spec.device == "cpu" or not torch.cuda.is_available())
        with open_reporter(folder, orders.attempt) as reporter:
            train_rank(spec, folder, reporter, orders)
        ranks.wait_for_all()
    except Stopped as request:
        log.info("stopped before the first step by %s", request)
    except BaseException as error:
        if not isinstance(error, SpecError | SystemExit):
            traceback.print_exc()
        problems = tuple(error.as_json()) if isinstance(error, SpecError) else ()
        words = "" if isinstance(error, SystemExit) else train.explain_failure(error)
        return write_end(orders_path.parent, Ended(ranks.index(), time.time(), words, problems))
    ranks.leave()
    return train.FINISHED


def use_own_gpu(spec: RunSpec) -> None:
    if spec.device != "cpu" and torch.cuda.is_available():
        torch.cuda.set_device(ranks.place_on_machine())


@contextmanager
def open_reporter(folder: Path, attempt: int) -> Iterator[Reporter]:
    if not ranks.is_first():
        yield SilentReporter(attempt)
        return
    with SpoolWriter(folder / SPOOL) as writer:
        yield Reporter(writer, attempt)


def train_rank(spec: RunSpec, folder: Path, reporter: Reporter, orders: Orders) -> None:
    stop = StopRequest(folder, spec.limits.minutes, orders.began)
    task = train.find_task(spec)
    resume = next(iter(list_whole_checkpoints(folder / CHECKPOINTS)[::-1]), None)
    with reporter.busy("loading"):
        policy = policies.load_policy(Path(orders.policy), spec)
    ports = ServerPorts(*orders.ports) if orders.ports else None
    attempt = Attempt(spec, folder, task, policy, reporter, stop, generation_server=ports)
    train.train_policy(attempt, resume)


def write_end(scratch: Path, ended: Ended) -> int:
    """Returns the rank's exit code.

    Written under another name first: a rank that is killed while it writes leaves nothing half written for the parent to read.
    """
    partial = scratch / f".ended-{ended.rank}"
    try:
        partial.write_text(json.dumps(asdict(ended)))
        partial.replace(scratch / f"ended-{ended.rank}.json")
    except OSError as error:  # or the parent has ended
        return DISK_FULL if error.errno in FULL else train.FAILED
    return train.FAILED


def read_ends(scratch: Path) -> list[Ended]:
    """What the ranks have said of their end, the first one first."""
    found = [json.loads(path.read_text()) for path in scratch.glob("ended-*.json")]
    return sorted((Ended(**{**one, "problems": tuple(one["problems"])}) for one in found), key=lambda one: one.time)


def explain_end(ends: Sequence[Ended], codes: Mapping[int, int], spec: RunSpec) -> Exception:
    """What to raise: SpecError where a rank refused the run, else RanksFailed with the name of the one that began it. ``codes``: exit codes."""
    killed = [rank for rank, code in sorted(codes.items()) if code < 0 and code != -signal.SIGTERM]
    if killed:  # the others' errors follow from it
        return RanksFailed(f"rank {killed[0]} was killed by {signal.Signals(-codes[killed[0]]).name}")
    if full := [rank for rank, code in sorted(codes.items()) if code == DISK_FULL]:
        return RanksFailed(f"rank {full[0]} could not write: the disk of the run folder is full")
    for one in ends:
        if one.problems:
            return SpecError([Problem(**problem) for problem in one.problems])
    first = next((one for one in ends if one.error), None)
    silent = name_ranks(spec, {one.rank for one in ends if one.error})
    if first and silent and any(word in first.error.lower() for word in TIMED_OUT):
        return RanksFailed(f"{silent} did not answer within {ranks.SILENCE_SECONDS:.0f} s")
    unheard = name_ranks(spec, {one.rank for one in ends})
    if first and unheard and any(word in first.error.lower() for word in HUNG_UP):  # elastic saw the end of another one before
        return RanksFailed(f"{unheard} was killed")
    if first:
        return RanksFailed(f"rank {first.rank}: {first.error}")
    rank, code = min(codes.items())
    return RanksFailed(f"rank {rank} ended with exit code {code}")


def name_ranks(spec: RunSpec, but: Set[int]) -> str:
    return " and ".join(f"rank {rank}" for rank in range(spec.resources.processes) if rank not in but)
