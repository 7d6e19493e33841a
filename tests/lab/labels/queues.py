"""Queues of rollouts for the tests of labelling, and short ways to label them."""

from __future__ import annotations

import uuid
from typing import Any

from lab.labelling.labels.item_claims import claim_items
from lab.labelling.labels.judgements import submit_judgement
from lab.labelling.labels.models import Judgement, Kind, Queue
from lab.labelling.labels.new_queues import NewItem, make_queue
from lab.rollouts.trajectories.models import Rollout
from lab.teams.accounts.models import Team, User
from tests.lab.supervisor.spools import make_run, rollout, started, store


def pair_queue(team: Team, items: int = 3, **settings: Any) -> Queue:
    """Pairs of the two answers to each of ``items`` prompts."""
    return group_queue(team, Kind.PAIR, items, 2, **settings)


def group_queue(team: Team, kind: Kind, items: int, answers: int, **settings: Any) -> Queue:
    """``items`` items, each with the ``answers`` answers of one group of a run."""
    run = make_run(team)
    texts = [rollout(1, group, sample, completion=f"answer {sample} to {group}") for group in range(items) for sample in range(answers)]
    store(run, started(), *texts)
    groups: dict[int, list[Rollout]] = {}
    for row in Rollout.objects.filter(run=run).order_by("group", "sample"):
        groups.setdefault(row.group, []).append(row)
    new = [NewItem(rows[0].prompt_id, tuple(row.pk for row in rows)) for rows in groups.values()]
    return make_queue(team, None, name="q", kind=kind, items=new, **settings)


def judge(queue: Queue, user: User, choice: str | None = None, **answer: Any) -> Judgement:
    """The user's next item, answered in stored places: "a" and "b" instead of the side."""
    held = claim_items(queue, user, hold=1)[0]
    if choice in ("a", "b"):
        choice = str(held.order.index("ab".index(choice)) + 1)
    data = {**answer, **({"choice": choice} if choice else {})}
    return submit_judgement(queue, user, held.token, uuid.uuid4(), data, 1.0)
