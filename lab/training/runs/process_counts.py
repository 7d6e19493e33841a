"""What a run asks of a worker, as its spec has it: processes to train in, and GPUs of a vLLM server beside them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.db.models import Q

from lab.training.runs.models import Run
from lab.training.workers.models import Worker

SERVER = "server"  # training.generation of runs whose completions a vLLM server writes
PROCESSES, GENERATION, SERVER_GPUS = "spec__resources__processes", "spec__training__generation", "spec__training__generation_gpus"


@dataclass(frozen=True)
class RunSize:
    """``server_gpus``: of the run's vLLM server, besides one for each process."""

    processes: int = 1
    server_gpus: int = 0

    @property
    def gpus(self) -> int:
        return self.processes + self.server_gpus

    def fits(self, gpus: int, cpus: int) -> bool:
        """Whether a worker with so many GPUs has room for it. Without any, processes share the CPU cores, and there is no vLLM server."""
        return self.gpus <= gpus if gpus else not self.server_gpus and self.processes <= max(1, cpus)

    @property
    def words(self) -> str:
        return f"{self.gpus} GPUs" + (f" ({self.server_gpus} for its vLLM server)" if self.server_gpus else "")

    def fits_worker(self, worker: Worker) -> bool:
        return self.fits(worker.gpus, worker.cpus)


ONE_PROCESS = RunSize()


def read_run_size(spec: Mapping[str, Any]) -> RunSize:
    """What a run of ``spec`` asks for: every rule about room for a run goes by it. One written before there were several processes has one."""
    training = spec.get("training") or {}
    processes = (spec.get("resources") or {}).get("processes") or 1
    return RunSize(int(processes), int(training.get("generation_gpus") or 1) if training.get("generation") == SERVER else 0)


def fetch_run_sizes(keys: Collection[UUID]) -> dict[UUID, RunSize]:
    """Run → its size, of those that ask for more than one process without a server. One query, without the rest of their specs."""
    if not keys:
        return {}
    larger = Run.across_teams.filter(Q(**{f"{PROCESSES}__gt": 1}) | Q(**{GENERATION: SERVER}), pk__in=keys)
    return {
        key: read_run_size({"resources": {"processes": processes}, "training": {"generation": generation, "generation_gpus": gpus}})
        for key, processes, generation, gpus in larger.values_list("pk", PROCESSES, GENERATION, SERVER_GPUS)
    }
