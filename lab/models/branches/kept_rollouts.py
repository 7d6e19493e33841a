"""Rollouts that people branched stay, whatever a retention rule says."""

from __future__ import annotations

from lab.rollouts.trajectories.keepers import KEEPERS, RolloutKeeper

BRANCHED = RolloutKeeper(
    "branched at a token",
    """
SELECT rollout_id FROM branches_branch WHERE team_id = %(team)s
""",
)


def register_branched_rollouts() -> None:
    KEEPERS.register("branches", BRANCHED)
