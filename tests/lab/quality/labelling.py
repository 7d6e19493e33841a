"""Runs with rewards, queues over them and judgements, for the tests of quality."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any

from lab.labelling.labels.models import Item, Judgement, Kind, Queue
from lab.labelling.labels.new_queues import NewItem, make_queue
from lab.labelling.labels.settlement import sync_preferences, update_item_state
from lab.rollouts.trajectories.models import Rollout
from lab.teams.accounts.models import Team, User
from lab.training.runs.models import Run, Status
from tests.lab.supervisor.spools import make_run, measured, rollout, started, store


def scored_run(team: Team, rewards: Sequence[Sequence[Any]], **fields: Any) -> Run:
    """A finished run with one group a step, from step 1: ``rewards`` of the members of each. The function "length" gives the opposite."""
    run = make_run(team, status=Status.FINISHED)
    events: list[Any] = [started()]
    for step, group in enumerate(rewards, 1):
        for sample, reward in enumerate(group):
            both = {"correct": reward, "length": None if reward is None else -reward}
            events.append(rollout(step, 0, sample, reward=reward, rewards=both, completion=f"answer {sample} of step {step}", **fields))
        known = [reward for reward in group if reward is not None]
        events.append(measured(step, values={"reward": sum(known) / len(known) if known else 0.0}))
    store(run, *events)
    run.refresh_from_db()
    return run


def members(run: Run, step: int) -> list[Rollout]:
    return list(Rollout.objects.filter(run=run, step=step).order_by("group", "sample"))


def queue_of(run: Run, at: Sequence[int] | None = None, kind: Kind = Kind.PAIR, gold: Any = None, **settings: Any) -> Queue:
    """One item for each step of ``at`` (default all): its group's members, in order."""
    at = at or sorted(set(Rollout.objects.filter(run=run).values_list("step", flat=True)))
    items = []
    for step in at:
        group = members(run, step)
        items.append(NewItem(group[0].prompt_id, tuple(one.pk for one in group), gold=gold))
    return make_queue(run.team, None, name="pairs", kind=kind, items=items, **settings)


def judge(item: Item, user: User, verdict: str, **fields: Any) -> Judgement:
    """A submitted judgement with what follows from it."""
    values = {"order": list(range(len(item.rollouts))), "seconds": 5.0, **fields}
    made = Judgement.objects.create(item=item, queue=item.queue, user=user, key=uuid.uuid4(), verdict=verdict, **values)
    sync_preferences(made, item)
    item.refresh_from_db()
    update_item_state(item)
    return made
