"""The vLLM server that samples a run's completions: a child of the trainer on GPUs of the same worker, gone when the run ends.

Its weights are the run's, so no two runs share one. It listens on 127.0.0.1 only: what TRL needs of it (``VLLM_SERVER_DEV_MODE``) asks nobody who
they are. TRL's trainer talks to it (``trl/generation/vllm_client.py``) and sends it the weights over NCCL before each batch that needs them.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
import warnings
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from requests.adapters import HTTPAdapter
from trl.import_utils import is_vllm_available
from urllib3.util.retry import Retry

from trainers.attempt.ranks import RanksFailed
from trainers.attempt.report import Reporter
from trainers.attempt.stop import StopRequest
from trainers.contract.hyperparameters import GroupRollouts
from trainers.contract.problems import Problem, SpecError
from trainers.contract.spec import RunSpec

HOST = "127.0.0.1"
PHASE = "starting vLLM"
START_SECONDS = 1800.0  # reading the weights of a large model, compiling kernels, capturing graphs
ANSWER_SECONDS = 1800.0  # a server that says nothing for so long is given up: TRL itself would wait for ever
END_SECONDS = 20.0
LAST_LINES_SECONDS = 2.0
CONNECTIONS = 64  # kept open, as many as TRL's client asks at once
TOLD_LINES = 20  # of its log, when it has ended
# The server dies with the trainer, however that ends: prctl's PR_SET_PDEATHSIG stays across exec.
BOUND_TO_PARENT = "import ctypes, os, signal, sys; ctypes.CDLL(None).prctl(1, signal.SIGKILL); os.execvp(sys.argv[1], sys.argv[1:])"


@dataclass(frozen=True)
class ServerPorts:
    """Where a trainer meets the server of its run: over HTTP, and where the weights are sent."""

    port: int
    group_port: int

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"

    def build_arguments(self) -> dict[str, Any]:
        """Of TRL's configuration."""
        return {
            "vllm_mode": "server",
            "vllm_server_base_url": self.url,
            "vllm_group_port": self.group_port,
            "vllm_server_timeout": ANSWER_SECONDS,
        }

    def limit_waiting(self, trainer: Any) -> None:
        """Gives every request of TRL's client a limit. On this machine, who refuses a connection is gone: TRL would try again for a minute."""
        session = trainer.vllm_generation.vllm_client.session
        session.request = partial(session.request, timeout=ANSWER_SECONDS)
        retry = Retry(total=3, connect=0, read=0, status_forcelist=[500, 502, 503], backoff_factor=1, allowed_methods=None)
        session.mount("http://", HTTPAdapter(max_retries=retry, pool_maxsize=CONNECTIONS))


class GenerationServer:
    """``gpus``: as CUDA_VISIBLE_DEVICES names them."""

    def __init__(self, policy: Path, gpus: Sequence[str], seed: int) -> None:
        self.ports = ServerPorts(*find_free_ports(2))
        self.policy, self.gpus, self.seed = policy, list(gpus), seed
        self.lines: deque[str] = deque(maxlen=TOLD_LINES)
        self.process: subprocess.Popen[str] | None = None

    def build_command(self) -> list[str]:
        """vLLM's own command, with what TRL asks for: log-probabilities at the sampling temperature, and an engine that takes new weights."""
        options = {
            "host": HOST,
            "port": self.ports.port,
            "tensor-parallel-size": len(self.gpus),
            "seed": self.seed,
            "weight-transfer-config": '{"backend": "nccl"}',
            "logprobs-mode": "processed_logprobs",
            "max-logprobs": -1,
        }
        return ["vllm", "serve", str(self.policy), *(part for name, value in options.items() for part in (f"--{name}", str(value)))]

    def build_environment(self) -> dict[str, str]:
        """What this process has, less the judge's key, which a server of completions has no use for."""
        given = {name: value for name, value in os.environ.items() if name != "LAB_JUDGE_KEY"}
        return {**given, "CUDA_VISIBLE_DEVICES": ",".join(self.gpus), "VLLM_SERVER_DEV_MODE": "1", "VLLM_HOST_IP": HOST}

    def start(self) -> None:
        """From the main thread: Linux ends a child that is bound to its parent with the thread that made it."""
        self.process = subprocess.Popen(
            [sys.executable, "-c", BOUND_TO_PARENT, *self.build_command()],
            env=self.build_environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,  # so that the processes it starts end with it
        )
        self.log_reader = threading.Thread(target=self.forward_log, name="vllm-log", daemon=True)
        self.log_reader.start()

    def forward_log(self) -> None:
        """What it prints goes into the run's log."""
        assert self.process is not None
        assert self.process.stdout is not None
        for line in map(str.rstrip, self.process.stdout):
            if line:
                self.lines.append(line)
                print(f"vllm: {line}", file=sys.stderr, flush=True)

    def wait_until_ready(self, stop: StopRequest) -> None:
        """Raises ConnectionError when it ends or does not answer in START_SECONDS, and Stopped."""
        deadline = time.monotonic() + START_SECONDS
        while not self.answers():
            stop.check()
            self.refuse_ended()
            if time.monotonic() > deadline:
                raise ConnectionError(f"the vLLM server did not answer within {START_SECONDS:.0f} s{self.tell_last_lines()}")
            time.sleep(0.2)

    def answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.ports.url}/health", timeout=2) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False

    def wait_for_end(self, seconds: float) -> None:
        """A connection breaks a moment before the process is seen to have ended."""
        assert self.process is not None
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(seconds)

    def refuse_ended(self) -> None:
        """Raises ConnectionError where the process has ended, with its last words."""
        code = self.process.poll() if self.process is not None else None
        if code is not None:
            how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
            self.log_reader.join(LAST_LINES_SECONDS)  # what it printed last may still be in the pipe
            raise ConnectionError(f"the vLLM server {how}{self.tell_last_lines()}")

    def tell_last_lines(self) -> str:
        return f"; its last lines: {' | '.join(self.lines)}" if self.lines else ""

    def stop(self) -> None:
        if self.process is None or self.process.poll() is not None:
            return
        for number, seconds in ((signal.SIGTERM, END_SECONDS), (signal.SIGKILL, None)):
            os.killpg(self.process.pid, number)
            try:
                self.process.wait(seconds)
            except subprocess.TimeoutExpired:
                continue
            return


@contextmanager
def run_generation_server(spec: RunSpec, policy: Path, reporter: Reporter, stop: StopRequest) -> Iterator[GenerationServer | None]:
    """A server that answers, where the spec asks for one, until the block ends. Raises SpecError, Stopped and ConnectionError."""
    training = spec.training
    if not (isinstance(training, GroupRollouts) and training.generation == "server"):
        yield None
        return
    server = GenerationServer(policy, choose_server_gpus(training, list_worker_gpus(), spec.resources.processes), spec.seed)
    os.environ["VLLM_HOST_IP"] = HOST  # the address that TRL tells the server to meet it at
    with reporter.busy(PHASE):
        refuse_missing_server(training)
        server.start()
        try:
            server.wait_until_ready(stop)
        except BaseException:
            server.stop()
            raise
    try:
        yield server
    except (OSError, RanksFailed):  # all errors of TRL's client are OSErrors: the reason behind it, where the server is gone
        server.wait_for_end(1.0)
        server.refuse_ended()
        raise
    finally:
        server.stop()


def list_worker_gpus() -> list[str]:
    """Names of the GPUs that the worker gave this run, the one that trains first; read before ``train.set_up`` keeps that one alone."""
    return [name for name in os.environ.get("LAB_WORKER_GPUS", os.environ.get("CUDA_VISIBLE_DEVICES", "0")).split(",") if name]


def choose_server_gpus(training: GroupRollouts, gpus: Sequence[str], processes: int = 1) -> list[str]:
    """Those after the ones that train. Raises SpecError where they are too few."""
    needed = training.generation_gpus
    if len(gpus) < processes + needed:
        trains = "one GPU trains" if processes == 1 else f"{processes} GPUs train"
        message = f"{trains} and {needed} generate{'s' if needed == 1 else ''}; this worker has {len(gpus)}"
        fix = f"start a worker with {processes + needed} GPUs (CUDA_VISIBLE_DEVICES), or use generation colocate"
        raise SpecError([Problem("training.generation", "server", message, fix)])
    return list(gpus[processes : processes + needed])


def refuse_missing_server(training: GroupRollouts) -> None:
    """Raises SpecError where vLLM is not installed, or is of a version that TRL does not know: before a model is loaded."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        installed = is_vllm_available()
    fix = "install a version that TRL supports on the worker, or generate with transformers"
    if not installed or shutil.which("vllm") is None:
        raise SpecError([Problem("training.generation", training.generation, "vllm is not installed on this worker", fix)])
    if about := next((str(one.message) for one in told if "vLLM" in str(one.message)), ""):
        raise SpecError([Problem("training.generation", training.generation, about, fix)])


def find_free_ports(count: int) -> list[int]:
    """Held together, so that they differ."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind((HOST, 0))
        return [int(one.getsockname()[1]) for one in sockets]
    finally:
        for one in sockets:
            one.close()
