"""The attempts of a run: what each ran in, on what data, with which packages."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from django.http import HttpRequest
from ninja import Field, Schema

from lab.edges.api.base import make_router, require_permission
from lab.edges.api.operations.runs import find_team_run
from lab.training.runs.environment import build_environment_json

router = make_router("Runs")


class CodeOut(Schema):
    commit: str = Field(description="Empty if it was not recorded.")
    changed: bool | None = Field(None, description="Whether files differed from the commit; null if unknown.")
    source: str = Field("", description="`git`: a clone; `release`: an archive or an image, which contains the commit it was made from.")


class PackageOut(Schema):
    name: str
    version: str
    url: str = Field("", description="Where it was installed from, if not from an index; without credentials.")
    commit: str = ""
    editable: bool = False
    changed: bool | None = Field(None, description="Only for editable packages: whether their folder had uncommitted changes.")


class HardwareOut(Schema):
    system: str = ""
    cpu: str = ""
    cores: int = 0
    gpus: list[str] = []
    driver: str = Field("", description="Version of the GPU driver.")
    cuda: str = Field("", description="Version of CUDA that torch was built for.")


class EnvironmentOut(Schema):
    code: CodeOut
    task: PackageOut | None = Field(None, description="The package that the task comes from; null for built-in tasks.")
    hardware: HardwareOut


class InputsOut(Schema):
    source: str = Field(description="`dataset`, `task` (rows drawn with the run's seed) or `policy` (pairs it sampled).", examples=["task"])
    rows: int
    sha256: str = Field(description="Over the rows as they reached the trainer, in order.")
    heldout_rows: int
    heldout_sha256: str
    revision: str = Field(description="Hub commit of the starting policy; empty if it is not from a hub.")
    weights: str = Field(description="SHA-256 of the starting policy's weights, if it is not from a hub.")


class MemoryPartOut(Schema):
    name: str = Field(description="`weights`, `gradients`, `optimizer`, …; the last is `total`.")
    low: int = Field(description="Bytes.")
    high: int = Field(description="Bytes.")
    formula: str = ""


class MemoryOut(Schema):
    parts: list[MemoryPartOut] = Field(description="What training was estimated to take; empty if the model's sizes are not known.")
    peak: int = Field(description="Bytes that it took at most so far.")
    measured: str = Field(description="`cuda`: allocated by torch on the GPU; `process`: resident memory of the process, where there is no GPU.")
    device_memory: int = Field(0, description="Bytes of the GPU; 0 without one.")


class AttemptOut(Schema):
    attempt: int
    from_step: int = Field(description="Steps already done when it started.")
    started_at: datetime
    outcome: str = Field(description="finished, stopped or failed; empty while it runs, or if it was lost.")
    error: str
    host: str
    device: str
    command: list[str]
    versions: dict[str, str] = Field(description="Python and the main packages.")
    environment: EnvironmentOut | None = Field(description="null if it was not recorded, as in runs of older versions.")
    inputs: InputsOut | None = Field(description="null if they were not recorded, or not yet.")
    memory: MemoryOut | None = Field(description="null if it was not recorded, or training has not begun.")
    packages: list[PackageOut] | None = Field(description="All installed packages; null if they were not recorded.")


@router.get("/runs/{uuid:run_id}/attempts", auth=require_permission("runs.read"), response=list[AttemptOut], summary="Attempts of a run")
def list_attempts(request: HttpRequest, run_id: UUID) -> object:
    """Each start of the trainer, with its commit, packages, hardware, and hashes of data and weights. Oldest first."""
    attempts = find_team_run(request, run_id).attempts.select_related("packages")
    told: list[dict[str, Any]] = [
        {
            **build_environment_json(attempt),
            **{name: getattr(attempt, name) for name in ("from_step", "started_at", "outcome", "error")},
        }
        for attempt in attempts
    ]
    return told
