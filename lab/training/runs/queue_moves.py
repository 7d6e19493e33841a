"""What people change about runs that wait: their order, priority and queue. A chain moves in one piece.

Every change holds the queue's lock, as claims do: two people who reorder at once do it one after the other, and a run that a worker has taken
meanwhile is said so. All of it is audited and told to open pages.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from django.db import transaction

from lab.lib.refusals import InputRefusal, Problem, Refusal
from lab.teams.accounts.models import Team
from lab.teams.audit.recording import record_audit_entry
from lab.training.runs import hold_reasons, live
from lab.training.runs.launch import enqueue_run
from lab.training.runs.models import HEAVY, WAITING, Priority, Run
from lab.training.runs.placement import list_usable_queues
from lab.training.runs.queue_order import lock_queues, order_chains


class Move(StrEnum):
    UP = "up"
    DOWN = "down"
    TOP = "top"
    BOTTOM = "bottom"
    BEFORE = "before"  # another run


@dataclass(frozen=True)
class QueueChange:
    """``words`` for the person; ``changed`` False: it was so already."""

    run: Run
    words: str
    changed: bool = True


@dataclass
class LockedQueue:
    """The team's waiting runs of one queue, held until the transaction ends."""

    queue: str
    chains: list[list[Run]]

    def find_chain(self, number: int) -> int | None:
        """The place of the chain that the run is in."""
        return next((place for place, chain in enumerate(self.chains) if any(run.number == number for run in chain)), None)


def move_run(team: Team, number: int, move: Move, before: int | None = None) -> QueueChange:
    """Raises Refusal: 404 for a run the team has not, 409 for one that waits no longer."""
    with transaction.atomic():
        locked, place = lock_waiting_run(team, number)
        chain = locked.chains[place]
        others = locked.chains[:place] + locked.chains[place + 1 :]
        target = find_target(LockedQueue(locked.queue, others), place, move, before, chain)
        run = next(run for run in chain if run.number == number)
        if target == place:
            return QueueChange(run, f"{name_chain(chain)} {'is' if len(chain) == 1 else 'are'} there already.", changed=False)
        priority = fit_priority(chain[0].priority, others, target)
        raised = priority != chain[0].priority
        write_order([*others[:target], chain, *others[target:]], dict.fromkeys((run.pk for run in chain), priority))
        record_audit_entry("run.move", run, queue=locked.queue, place=[place + 1, target + 1], runs=[run.number for run in chain])
        tell_after_commit(chain)
    where = f"before #{others[target][0].number}" if target < len(others) else "to the end"
    where = f"to the top, {where}" if target == 0 else where
    words = f"Moved {name_chain(chain)} {where} in the queue {locked.queue}."
    return QueueChange(run, words + (f" Its priority is {Priority(priority).label.lower()} now." if raised else ""))


def find_target(others: LockedQueue, place: int, move: Move, before: int | None, chain: Sequence[Run]) -> int:
    """The place among the other chains."""
    if move == Move.BEFORE:
        if before in {run.number for run in chain}:
            return place
        found = others.find_chain(before or 0)
        if found is None:
            raise Refusal(f"#{before} is not in the queue {others.queue} any more. Nothing was moved.", "Look at the queue again.", "before")
        return found
    end = len(others.chains)
    return {Move.UP: max(0, place - 1), Move.DOWN: min(end, place + 1), Move.TOP: 0, Move.BOTTOM: end}[move]


def fit_priority(own: int, others: Sequence[Sequence[Run]], target: int) -> int:
    """A run that is put before one of higher priority, or behind one of lower, gets that one's: the order is what people see."""
    if target < len(others):
        own = max(own, others[target][0].priority)
    return min(own, others[target - 1][0].priority) if target else own


def write_order(chains: Sequence[Sequence[Run]], priorities: dict[Any, int]) -> None:
    """The places of all of them, so that nothing moves but what was moved. Raises nothing for runs that are there already."""
    changed = []
    for place, run in enumerate((run for chain in chains for run in chain), start=1):
        priority = priorities.get(run.pk, run.priority)
        if (run.queue_place, run.priority) != (place, priority):
            run.queue_place, run.priority = place, priority
            changed.append(run)
    if changed:
        Run.objects.of(changed[0].team_id).bulk_update(changed, ["queue_place", "priority"])


def change_priority(team: Team, number: int, priority: Priority) -> QueueChange:
    """The chain goes behind those that people put in order within the new priority. Raises Refusal."""
    with transaction.atomic():
        locked, place = lock_waiting_run(team, number)
        chain = locked.chains[place]
        run = next(run for run in chain if run.number == number)
        words = f"{name_chain(chain)}: priority {priority.label.lower()}."
        if all(one.priority == priority for one in chain):
            return QueueChange(run, words, changed=False)
        before = Priority(run.priority).label.lower()
        update_chain(chain, priority=priority, queue_place=None)
        record_audit_entry("run.priority", run, priority=[before, priority.label.lower()], runs=[one.number for one in chain])
        tell_after_commit(chain)
    return QueueChange(run, words)


def move_to_queue(team: Team, number: int, queue: str) -> QueueChange:
    """Raises InputRefusal for a queue that nobody serves or the team may not use, and Refusal."""
    check_queue(team, queue)
    with transaction.atomic():
        locked, place = lock_waiting_run(team, number, queue)
        chain = locked.chains[place]
        run = next(run for run in chain if run.number == number)
        if locked.queue == queue:
            return QueueChange(run, f"{name_chain(chain)} {'is' if len(chain) == 1 else 'are'} in the queue {queue} already.", changed=False)
        update_chain(chain, queue=queue, queue_place=None)
        record_audit_entry("run.queue", run, queue=[locked.queue, queue], runs=[one.number for one in chain])
        enqueue_run(chain[0])  # a message that comes too early for a stage finds nothing to claim
        tell_after_commit(chain)
    return QueueChange(run, f"Moved {name_chain(chain)} to the queue {queue}.")


def check_queue(team: Team, queue: str) -> None:
    if refusal := hold_reasons.find_queue_refusal(team, queue):
        raise InputRefusal([Problem("queue", refusal[:1].upper() + refusal[1:], "Choose another queue, or ask an admin of the team.")])
    usable = list_usable_queues(team)
    if queue not in usable:
        raise InputRefusal([Problem("queue", f"No worker serves the queue {queue}.", f"Choose one of: {', '.join(usable)}.")])


def lock_waiting_run(team: Team, number: int, *queues: str) -> tuple[LockedQueue, int]:
    """The run's queue and the place of its chain there, with the queue and ``queues`` locked. Raises Refusal."""
    for _ in range(2):
        name = find_run(team, number).queue
        lock_queues({name, *queues})
        run = find_run(team, number)
        if run.queue == name:
            break
    else:
        raise Refusal(f"Somebody has just moved #{number} to another queue.", "Look at the queue again.")
    if run.status not in WAITING or run.outside:
        raise Refusal(explain_not_waiting(run), "Nothing was changed.")
    runs = Run.objects.of(team).filter(queue=name, status__in=WAITING, outside=False).select_for_update(of=("self",))
    locked = LockedQueue(name, order_chains(runs.defer(*HEAVY).order_by("number")))
    place = locked.find_chain(number)
    if place is None:  # stopped while its row was waited for
        raise Refusal(f"#{number} waits no longer.", "Nothing was changed.")
    return locked, place


def find_run(team: Team, number: int) -> Run:
    run: Run | None = Run.objects.of(team).filter(number=number).only("team_id", "number", "name", "queue", "status", "owner", "outside").first()
    if run is None:
        raise Refusal(f"Your team has no run #{number}.", status=404)
    return run


def explain_not_waiting(run: Run) -> str:
    if run.is_active and not run.outside:
        return f"#{run.number} waits no longer: the worker {run.owner.split('/')[0]} has taken it."
    return f"#{run.number} waits no longer: it is {run.status}."


def update_chain(chain: Sequence[Run], **fields: Any) -> None:
    Run.objects.of(chain[0].team_id).filter(pk__in=[run.pk for run in chain]).update(**fields)
    for run in chain:
        for name, value in fields.items():
            setattr(run, name, value)


def name_chain(chain: Sequence[Run]) -> str:
    numbers = [f"#{run.number}" for run in chain]
    return numbers[0] if len(numbers) == 1 else f"{', '.join(numbers[:-1])} and {numbers[-1]}"


def tell_after_commit(chain: Sequence[Run]) -> None:
    for run in chain:
        transaction.on_commit(lambda run=run: live.publish_state(run), robust=True)  # type: ignore[misc]
