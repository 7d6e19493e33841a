"""Finished runs of a team that resemble one to be launched, with the time they took for a step: what its estimate rests on.

Alike are runs of the same trainer whose policy comes from the same model and that trained on the same device; of the same task where there are any.
LoRA, and waiting for people's rankings, tell runs apart too: each changes the time of a step more than anything else does.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

from django.db.models import Sum

from lab.teams.accounts.models import Team
from lab.training.runs.models import Attempt, Run, Status
from lab.training.workers.models import Worker
from lab.watching.usage import ledger
from lab.watching.usage.models import Lease
from trainers.contract.spec import RunSpec

NEWEST = 12  # runs that an estimate rests on: older ones were trained with other code
MANY = 5  # from so many on, the fastest and the slowest are left out: one that shared its machine says nothing of the next
READ = 200  # newest finished runs that are looked through
MANNER_COLUMNS = ("trainer", "task", "spec__task__name", "spec__policy", "spec__lora", "spec__human", "spec__device")
DEEPEST = 20  # stages of a chain that a policy is followed back through


@dataclass(frozen=True)
class Pace:
    """A finished run's time on a worker over its steps, less the cold start of its policy, which is made once for all runs."""

    number: int
    task: str
    seconds: float
    gpu_seconds: float


@dataclass(frozen=True)
class RunManner:
    """What makes the steps of two runs take alike. ``origin``: what its policy was trained from in the first place."""

    trainer: str
    task: str
    device: str
    origin: str
    lora: bool
    human: bool


def find_similar_paces(team: Team, specs: Sequence[RunSpec], queue: str) -> list[list[Pace]]:
    """The paces of the newest runs like each of ``specs``, stages of a chain: a later stage has the policy of the first."""
    [origin] = trace_policy_origins(team, [specs[0].policy.model_dump(mode="json")])
    manners = [RunManner(spec.training.trainer, spec.task.name, spec.device, origin, bool(spec.lora), bool(spec.human)) for spec in specs]
    return [find_manner_paces(team, manner, queue) for manner in manners]


def find_manner_paces(team: Team, manner: RunManner, queue: str) -> list[Pace]:
    runs = find_similar_runs(team, manner)
    gpus = gpus_of(queue)
    on = [run for run in runs if is_matching_device(run["device"], manner.device, gpus)]
    same_task = [run for run in on if name_task(run) == manner.task]
    return compute_run_paces(team, (same_task or on)[:NEWEST])


def list_run_manners(team: Team, runs: Sequence[Mapping[str, Any]]) -> list[RunManner]:
    """Of stored runs, rows with MANNER_COLUMNS."""
    origins = trace_policy_origins(team, [run["spec__policy"] for run in runs])
    return [
        RunManner(run["trainer"], name_task(run), run["spec__device"] or "auto", origin, bool(run["spec__lora"]), bool(run["spec__human"]))
        for run, origin in zip(runs, origins, strict=True)
    ]


def name_task(run: Mapping[str, Any]) -> str:
    """Without the version of a task of the team's own: its versions take alike."""
    return str(run["spec__task__name"] or run["task"])


def find_similar_runs(team: Team, manner: RunManner) -> list[dict[str, Any]]:
    """The newest finished runs of the trainer whose policy comes from the same model, with the device of their last attempt."""
    runs = Run.objects.of(team).filter(status=Status.FINISHED, trainer=manner.trainer, outside=False, step__gt=0)
    rows = list(runs.order_by("-number").values("pk", "number", "step", "latest", *MANNER_COLUMNS)[:READ])
    same = [row for row, known in zip(rows, list_run_manners(team, rows), strict=True) if is_like(known, manner)]
    devices = dict(Attempt.objects.of(team).filter(run__in=[row["pk"] for row in same]).order_by("number").values_list("run", "device"))
    return [{**row, "device": devices.get(row["pk"], "")} for row in same]


def is_like(known: RunManner, manner: RunManner) -> bool:
    return (known.origin, known.lora, known.human) == (manner.origin, manner.lora, manner.human)


def compute_run_paces(team: Team, runs: Sequence[Mapping[str, Any]]) -> list[Pace]:
    """Of those whose time on a worker is known."""
    took: defaultdict[UUID, list[float]] = defaultdict(lambda: [0.0, 0.0])
    leases = Lease.objects.of(team).filter(run__in=[run["pk"] for run in runs]).order_by()
    for key, gpus, time in leases.values_list("run", "gpus").annotate(time=Sum(ledger.build_lease_duration())):
        took[key][0] += time.total_seconds()
        took[key][1] += gpus * time.total_seconds()
    paces = [pace_of(run, *took[run["pk"]]) for run in runs if run["pk"] in took]
    return sorted(paces, key=lambda pace: pace.seconds)[1:-1] if len(paces) >= MANY else paces


def pace_of(run: Mapping[str, Any], seconds: float, gpu_seconds: float) -> Pace:
    """Of the ``seconds`` that workers held the run, and their GPUs."""
    cold_start = run["latest"].get("cold_start_seconds", 0.0)
    left = max(0.0, seconds - cold_start) / seconds if seconds else 0.0
    return Pace(run["number"], run["task"], left * seconds / run["step"], left * gpu_seconds / run["step"])


def gpus_of(queue: str) -> set[str]:
    """Names of the GPUs that a run of the queue may go to now, empty for a worker without one. Nothing while no worker serves it."""
    return {gpu.rpartition(",")[0] or gpu for gpu in Worker.objects.serving(queue).values_list("gpu", flat=True)}


def is_matching_device(device: str, requested: str, gpus: Collection[str]) -> bool:
    """Whether a run would train on what an attempt called ``device`` ("cuda (NVIDIA H200), bf16"), as far as can be told beforehand."""
    on_cpu = device.startswith("cpu")
    if requested != "auto" and (requested == "cpu") != on_cpu:
        return False
    if requested == "cpu" or not gpus:
        return bool(device)
    return "" in gpus if on_cpu else any(gpu and gpu in device for gpu in gpus)


def trace_policy_origins(team: Team, policies: Sequence[Any]) -> list[str]:
    """What each policy of a spec was trained from in the first place, through the runs between."""
    known: dict[UUID, Any] = {}
    run_ids = {run for policy in policies if (run := run_behind(policy))}
    for _ in range(DEEPEST):
        if not run_ids:
            break
        known |= dict(Run.objects.of(team).filter(pk__in=run_ids).values_list("pk", "spec__policy"))
        run_ids = {run for policy in known.values() if (run := run_behind(policy))} - known.keys()
    return [trace_policy_origin(policy, known) for policy in policies]


def trace_policy_origin(policy: Any, known: Mapping[UUID, Any]) -> str:
    for _ in range(DEEPEST):
        run = run_behind(policy)
        if run is None or run not in known:
            break
        policy = known[run]
    return ":".join(str(policy.get(key, "")) for key in ("kind", "name", "path", "folder")) if isinstance(policy, dict) else ""


def run_behind(policy: Any) -> UUID | None:
    """The run whose policy it is."""
    if not isinstance(policy, dict) or policy.get("kind") != "run":
        return None
    try:
        return UUID(Path(str(policy.get("folder", ""))).name)
    except ValueError:
        return None
