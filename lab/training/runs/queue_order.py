"""The order in which workers claim the runs of a queue.

Between teams: whoever has the fewest runs in training goes first, then whoever has not been served for longest. Within a team: by priority,
then as people put the runs in order, then by the time they were queued. A chain stays in one piece, each stage behind the one it starts from.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import connection
from django.db.models import Count, Max

from lab.training.runs.models import ACTIVE, Run

NEVER = float("-inf")
CLAIM_COLUMNS = ("pk", "team_id", "parent_id", "queue", "priority", "queue_place", "queued_at", "number")


def lock_queues(names: Iterable[str]) -> None:
    """Keeps claims and changes of the order off the queues until the transaction ends; always in the same order, so that nobody deadlocks."""
    with connection.cursor() as cursor:
        for name in sorted(set(names)):
            cursor.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", [f"queue of runs {name}"])


def list_claim_orders(queues: Collection[str]) -> dict[str, list[UUID]]:
    """Queue → the runs that a worker may claim now, of all teams, the next one first. A few queries, however many runs wait."""
    return order_claims(Run.across_teams.waiting().filter(queue__in=set(queues)).only(*CLAIM_COLUMNS))


def order_claims(ready: Iterable[Run]) -> dict[str, list[UUID]]:
    """The same of ``ready``, all runs that a worker may claim now."""
    return {queue: [run.pk for run in runs] for queue, runs in order_waiting_runs(ready).items()}


def order_waiting_runs(runs: Iterable[Run]) -> dict[str, list[Run]]:
    """Queue → those of ``runs`` that are in it, of all teams, in the order in which they are claimed. Later stages stand behind their first."""
    waiting: defaultdict[str, defaultdict[int, list[Run]]] = defaultdict(lambda: defaultdict(list))
    for run in runs:
        waiting[run.queue][run.team_id].append(run)
    shared = {queue: teams for queue, teams in waiting.items() if len(teams) > 1}
    running, served = fetch_team_turns(shared)
    orders = {}
    for queue, teams in waiting.items():
        turns: list[tuple[tuple[float, ...], Run]] = []
        for team, theirs in teams.items():
            count, last = running.get((queue, team), 0), served.get((queue, team), NEVER)
            since = min(run.queued_at for run in theirs).timestamp()
            chained = [run for chain in order_chains(theirs) for run in chain]
            turns += [((count + turn, last, since, team), run) for turn, run in enumerate(chained)]
        orders[queue] = [run for _, run in sorted(turns, key=lambda turn: turn[0])]
    return orders


def fetch_team_turns(shared: dict[str, Any]) -> tuple[dict[tuple[str, int], int], dict[tuple[str, int], float]]:
    """Of queues that several teams wait in, (queue, team) → how many runs it has in training, and when the last of its runs started."""
    if not shared:
        return {}, {}
    teams = {team for waiting in shared.values() for team in waiting}
    runs = Run.across_teams.filter(queue__in=shared, team__in=teams, outside=False).order_by()
    running = runs.filter(status__in=ACTIVE).values_list("queue", "team").annotate(count=Count("pk"))
    started = runs.filter(started_at__isnull=False).values_list("queue", "team").annotate(last=Max("started_at"))
    return {(queue, team): count for queue, team, count in running}, {(queue, team): last.timestamp() for queue, team, last in started}


def build_claim_key(run: Run) -> tuple[int, float, datetime, int]:
    """Its place among the runs of its team and queue."""
    return -run.priority, float("inf") if run.queue_place is None else run.queue_place, run.queued_at, run.number


def order_chains(runs: Iterable[Run]) -> list[list[Run]]:
    """The waiting runs of a team and a queue as chains in their order, each from its first stage on. A run by itself is a chain of one."""
    ordered = sorted(runs, key=build_claim_key)
    here = {run.pk for run in ordered}
    children: defaultdict[UUID | None, list[Run]] = defaultdict(list)
    for run in ordered:
        children[run.parent_id if run.parent_id in here else None].append(run)

    def follow(head: Run) -> list[Run]:
        chain, ahead = [], [head]
        while ahead:
            chain.append(ahead.pop())
            ahead += reversed(children[chain[-1].pk])
        return chain

    return [follow(head) for head in children[None]]
