"""Rollouts that a labelling queue asks about, open or closed, stay, whatever a retention rule says: labels refer to them."""

from __future__ import annotations

from lab.rollouts.trajectories.keepers import KEEPERS, RolloutKeeper

QUEUED = RolloutKeeper(
    "in a labelling queue",
    """
SELECT unnest(item.rollouts) FROM labels_item AS item JOIN labels_queue AS queue ON queue.id = item.queue_id WHERE queue.team_id = %(team)s
""",
)


def register_queued_rollouts() -> None:
    KEEPERS.register("queues", QUEUED)
