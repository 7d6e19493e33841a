"""Why a queued or lost run has not started: its parent, a quota, no worker for its queue, or others before it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from uuid import UUID

from lab.training.runs import hold_reasons
from lab.training.runs.models import WAITING, Run, Status
from lab.training.runs.queue_order import list_claim_orders
from lab.training.workers.models import Worker

WILL_NOT_FINISH = (Status.STOPPED, Status.FAILED)


@dataclass(frozen=True)
class WaitReason:
    """``why`` in a few words, ``kind`` parent, blocked, held, worker or position; ``parent`` is the run it waits for."""

    kind: str
    why: str
    parent: Run | None = None
    queue: str = ""
    position: int | None = None  # of those that a worker may claim now, of all teams


def find_waiting_reasons(runs: Iterable[Run]) -> dict[UUID, WaitReason]:
    """The reason of each run in ``runs`` that waits, in a few queries however many there are. Parents should be select_related."""
    waiting = [run for run in runs if run.status in WAITING]
    if not waiting:
        return {}
    served = {queue for queues in Worker.objects.taking_runs().values_list("queues", flat=True) for queue in queues}
    ahead = list_claim_orders({run.queue for run in waiting})
    held = hold_reasons.find_held_reasons(waiting)
    return {run.pk: _explain_waiting_run(run, served, ahead.get(run.queue, []), held.get(run.pk, "")) for run in waiting}


def _explain_waiting_run(run: Run, served: set[str], ahead: list[UUID], held: str) -> WaitReason:
    parent = run.parent
    if parent is not None and parent.status != Status.FINISHED:
        if parent.status in WILL_NOT_FINISH:
            return WaitReason("blocked", f"#{parent.number} {parent.status}: resume it first", parent)
        return WaitReason("parent", f"after #{parent.number}", parent)
    if held:
        return WaitReason("held", held, queue=run.queue)
    if run.queue not in served:
        return WaitReason("worker", f"no worker for {run.queue}", queue=run.queue)
    position = ahead.index(run.pk) + 1 if run.pk in ahead else 1
    return WaitReason("position", f"queue position {position}", queue=run.queue, position=position)
