"""Labelling items that ask about a run's rollouts: what people said about them goes with the run."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from uuid import UUID

from django.db import connection

from lab.teams.accounts.models import Team
from lab.training.runs.models import Run

# A question of a trainer may stand in its item as texts, before its rollouts are stored.
ITEMS = """
SELECT answered.run_id, i.id
FROM labels_queue AS q JOIN labels_item AS i ON i.queue_id = q.id
CROSS JOIN LATERAL unnest(i.rollouts) AS shown(id) JOIN trajectories_rollout AS answered ON answered.id = shown.id
WHERE q.team_id = %(team)s AND answered.run_id = ANY(%(runs)s)
UNION
SELECT asked.run_id, asked.item_id FROM loop_ask AS asked WHERE asked.run_id = ANY(%(runs)s) AND asked.item_id IS NOT NULL
"""


def find_run_items(team: Team, runs: Sequence[Run]) -> dict[UUID, set[int]]:
    """Run → ids of the items that show a rollout of it."""
    items: defaultdict[UUID, set[int]] = defaultdict(set)
    with connection.cursor() as cursor:
        cursor.execute(ITEMS, {"team": team.pk, "runs": [run.pk for run in runs]})
        for run, item in cursor.fetchall():
            items[run].add(item)
    return items
