"""What people said earlier about pairs that the same reward has scored: the votes the model of disagreement is fitted on."""

from __future__ import annotations

from collections.abc import Collection
from uuid import UUID

import numpy as np
from django.db import connection

from lab.labelling.labels.forecast import WilsonShare
from lab.labelling.labels.models import COUNTING, Queue
from lab.labelling.labels.strategies import MOST_FITTED, Disagreement, fit_disagreement_model
from lab.teams.accounts.models import Team

# The same reward: the same task with the same weights of its reward functions.
VOTES = """
SELECT c.reward, c.length, c.mean_entropy, r.reward, r.length, r.mean_entropy
FROM labels_preference p
JOIN labels_judgement j ON j.id = p.judgement_id AND j.state = ANY(%(counting)s)
JOIN labels_queue q ON q.id = j.queue_id AND q.team_id = %(team)s
JOIN trajectories_rollout c ON c.id = p.chosen
JOIN trajectories_rollout r ON r.id = p.rejected
JOIN runs_run run ON run.id = c.run_id
WHERE c.reward <> r.reward AND EXISTS (
  SELECT 1 FROM runs_run same WHERE same.id = ANY(%(runs)s) AND same.task = run.task
  AND same.spec #> '{task,rewards}' IS NOT DISTINCT FROM run.spec #> '{task,rewards}')
ORDER BY p.id DESC LIMIT %(most)s
"""

AGREEMENT = """
SELECT count(*) FILTER (WHERE c.reward > r.reward), count(*), count(DISTINCT p.judgement_id)
FROM labels_judgement j
JOIN labels_preference p ON p.judgement_id = j.id
JOIN trajectories_rollout c ON c.id = p.chosen
JOIN trajectories_rollout r ON r.id = p.rejected
WHERE j.queue_id = %s AND j.state = ANY(%s) AND c.reward <> r.reward
"""


def model_for(team: Team, runs: Collection[UUID]) -> Disagreement | None:
    """Fitted on the team's newest votes about pairs scored by the reward of one of ``runs``; None while they are too few."""
    counting = [state.value for state in COUNTING]
    with connection.cursor() as cursor:
        cursor.execute(VOTES, {"counting": counting, "team": team.pk, "runs": list(runs), "most": MOST_FITTED})
        rows = np.array(cursor.fetchall(), dtype=np.float64).reshape(-1, 6)
    if not len(rows):
        return None
    chosen, rejected = rows[:, :3], rows[:, 3:]
    disagreed = chosen[:, 0] < rejected[:, 0]
    better, worse = (np.where(disagreed[:, None], *pair) for pair in ((rejected, chosen), (chosen, rejected)))
    return fit_disagreement_model(np.nan_to_num(better - worse), disagreed)


def with_reward(queue: Queue) -> tuple[WilsonShare, int]:
    """How often the queue's votes take the side of the reward, where it has one; and how many labels these votes are from."""
    with connection.cursor() as cursor:
        cursor.execute(AGREEMENT, [queue.pk, [state.value for state in COUNTING]])
        hits, votes, labels = cursor.fetchone() or (0, 0, 0)
    return WilsonShare(hits, votes), labels
