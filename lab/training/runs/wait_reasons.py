"""Why a queued or lost run has not started: its parent, a quota, no worker with room for it, or others before it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from django.conf import settings

from lab.training.runs import hold_reasons
from lab.training.runs.models import WAITING, Run, Status
from lab.training.runs.process_counts import ONE_PROCESS, RunSize, fetch_run_sizes
from lab.training.runs.queue_order import list_claim_orders
from lab.training.workers.models import Worker, WorkerStart

WILL_NOT_FINISH = (Status.STOPPED, Status.FAILED)


@dataclass(frozen=True)
class WaitReason:
    """``why`` in a few words, ``kind`` parent, blocked, held, worker, starting, size or position; ``parent`` is the run it waits for."""

    kind: str
    why: str
    parent: Run | None = None
    queue: str = ""
    position: int | None = None  # of those that a worker may claim now, of all teams


@dataclass(frozen=True)
class QueueState:
    """What runs that wait are waiting for: what each of them asks of a worker, where it is not one process; the workers that take runs;
    by queue, the runs that a worker may claim now, of all teams, the next one first; and why runs are held back.
    """

    sizes: Mapping[UUID, RunSize]
    workers: Sequence[Worker]
    ahead: Mapping[str, list[UUID]]
    held: Mapping[UUID, str]


def find_waiting_reasons(runs: Iterable[Run]) -> dict[UUID, WaitReason]:
    """The reason of each run in ``runs`` that waits, in a few queries however many there are. Parents should be select_related."""
    waiting = [run for run in runs if run.status in WAITING]
    if not waiting:
        return {}
    sizes, workers = fetch_run_sizes([run.pk for run in waiting]), list(Worker.objects.taking_runs())
    ahead = list_claim_orders({run.queue for run in waiting})
    return explain_waiting_runs(waiting, QueueState(sizes, workers, ahead, hold_reasons.find_held_reasons(waiting)))


def explain_waiting_runs(waiting: Sequence[Run], known: QueueState) -> dict[UUID, WaitReason]:
    """The reason of each, with what is ``known`` of their queues."""
    desks = collect_queue_desks(known.workers)
    states = find_start_states({run.queue for run in waiting})
    missing = {run.pk: _find_missing_worker(run.queue, known.sizes.get(run.pk, ONE_PROCESS), desks.get(run.queue, ()), states) for run in waiting}
    return {run.pk: _explain_waiting_run(run, missing[run.pk], known.ahead.get(run.queue, []), known.held.get(run.pk, "")) for run in waiting}


def collect_queue_desks(workers: Iterable[Worker]) -> dict[str, set[tuple[int, int]]]:
    """Queue → GPUs and CPU cores of each kind of worker that takes runs of it. Queues that nobody serves are not there."""
    desks: defaultdict[str, set[tuple[int, int]]] = defaultdict(set)
    for worker in workers:
        for queue in worker.queues:
            desks[queue].add((worker.gpus, worker.cpus))
    return desks


def find_start_states(queues: Iterable[str]) -> dict[str, str]:
    """Of those of ``queues`` whose workers a command starts (LAB_START), how far the newest start is; empty where there was none."""
    started = {queue: "" for queue in queues if queue in settings.WORKER_STARTS}
    if started:
        newest = WorkerStart.objects.judged().filter(queue__in=started).order_by("queue", "-started_at").distinct("queue")
        started |= {start.queue: start.state for start in newest}
        coming = WorkerStart.objects.coming().filter(queue__in=started).values_list("queue", flat=True)
        started |= dict.fromkeys(coming, "coming")
    return started


START_WORDS = {
    "coming": "a worker for {} is being started",
    "running": "a worker for {} is being started",
    "failed": "the command that starts workers for {} failed",
    "missing": "the worker that was started for {} did not come; another is to be started",
}


def _find_missing_worker(queue: str, size: RunSize, desks: Collection[tuple[int, int]], states: Mapping[str, str]) -> WaitReason | None:
    """None where a worker that is there takes it once it is free."""
    if any(size.fits(*desk) for desk in desks):
        return None
    if queue in states and size.gpus <= settings.WORKER_STARTS[queue].gpus:
        return WaitReason("starting", START_WORDS.get(states[queue], "a worker for {} is to be started").format(queue), queue=queue)
    if desks or queue in states:
        return WaitReason("size", f"no worker for {queue} with {size.words}", queue=queue)
    return WaitReason("worker", f"no worker for {queue}", queue=queue)


def _explain_waiting_run(run: Run, missing: WaitReason | None, ahead: list[UUID], held: str) -> WaitReason:
    parent = run.parent
    if parent is not None and parent.status != Status.FINISHED:
        if parent.status in WILL_NOT_FINISH:
            return WaitReason("blocked", f"#{parent.number} {parent.status}: resume it first", parent)
        return WaitReason("parent", f"after #{parent.number}", parent)
    if held:
        return WaitReason("held", held, queue=run.queue)
    if missing:
        return missing
    position = ahead.index(run.pk) + 1 if run.pk in ahead else 1
    return WaitReason("position", f"queue position {position}", queue=run.queue, position=position)
