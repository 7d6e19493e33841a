"""Rollouts through the product's ingest, queues over them, and labels as people give them."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any

from lab.data.datasets.models import Dataset, Form
from lab.labelling.labels.implied_preferences import derive_preferences
from lab.labelling.labels.models import Item, ItemState, Judgement, Kind, Preference, Queue
from lab.labelling.labels.new_queues import NewItem, make_queue
from lab.rollouts.trajectories.models import Rollout
from lab.teams.accounts.models import Team, User
from lab.training.runs.models import Run
from tests.lab.supervisor.spools import make_run, rollout, started, store
from trainers.contract.events import Message


def run_with(team: Team, steps: int = 3, groups: int = 2, samples: int = 2, **fields: Any) -> Run:
    """Answers that differ everywhere; the lower sample has the higher reward, and three reward functions."""
    run = make_run(team, spec={"recipe": "grpo", "training": {"temperature": 0.7, "max_completion_length": 40}})
    events = [
        rollout(
            step,
            group,
            sample,
            **{
                "prompt": [Message("user", f"What is {step} times {group}?")],
                "completion": f"answer {step}.{group}.{sample} of run {run.number}",
                "reward": 1.0 - sample,
                "rewards": {"correct": 1.0 - sample, "format": 1.0 - sample, "brevity": 0.5},
                **fields,
            },
        )
        for step in range(1, steps + 1)
        for group in range(groups)
        for sample in range(samples)
    ]
    store(run, started(), *events)
    run.refresh_from_db()
    return run


def groups_of(run: Run) -> list[list[Rollout]]:
    found: dict[tuple[int, int], list[Rollout]] = {}
    for one in Rollout.objects.filter(run=run).order_by("step", "group", "sample"):
        found.setdefault((one.step, one.group), []).append(one)
    return list(found.values())


def queue_of(team: Team, user: User, groups: Sequence[Sequence[Rollout]], kind: Kind = Kind.PAIR, **settings: Any) -> Queue:
    items = [NewItem(group[0].prompt_id, tuple(one.pk for one in group)) for group in groups]
    return make_queue(team, user, name="Queue", kind=kind, items=items, **settings)


def judge(item: Item, user: User, verdict: str, **fields: Any) -> Judgement:
    """A judgement with its preferences, and the item's state."""
    values = {"order": list(range(len(item.rollouts))), "seconds": 5.0, **fields}
    made = Judgement.objects.create(item=item, queue=item.queue, user=user, key=uuid.uuid4(), verdict=verdict, **values)
    pairs = derive_preferences(verdict, made.tiers, item.rollouts)
    Preference.objects.bulk_create(Preference(judgement=made, item=item, chosen=chosen, rejected=rejected) for chosen, rejected in pairs)
    labels = item.judgements.count()
    state = ItemState.OPEN if labels < item.queue.overlap else ItemState.DONE
    Item.across_teams.filter(pk=item.pk).update(labels=labels, room=max(0, item.queue.overlap - labels), state=state)
    item.refresh_from_db()
    return made


def judge_all(queue: Queue, users: Sequence[User], verdict: str = "a", **fields: Any) -> None:
    for item in queue.items.order_by("place"):
        for user in users:
            judge(item, user, verdict, **fields)


def dataset_of(team: Team, user: User, *queues: Queue, form: str = Form.PREFERENCE, name: str = "Good answers") -> Dataset:
    dataset = Dataset.objects.create(team=team, name=name, form=form, created_by=user)
    dataset.queues.set(queues)
    return dataset
