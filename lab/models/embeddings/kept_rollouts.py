"""Rollouts of a clustering stay, whatever a retention rule says; a vector alone keeps none."""

from __future__ import annotations

from lab.rollouts.trajectories.keepers import KEEPERS, RolloutKeeper

CLUSTERED = RolloutKeeper(
    "in a clustering",
    """
SELECT member.rollout_id FROM embeddings_clustermember AS member JOIN embeddings_embeddingjob AS job ON job.id = member.job_id
WHERE job.team_id = %(team)s
""",
)


def register_clustered_rollouts() -> None:
    KEEPERS.register("clusterings", CLUSTERED)
