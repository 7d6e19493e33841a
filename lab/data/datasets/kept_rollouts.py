"""Rollouts that rows of a frozen version come from stay, whatever a retention rule says."""

from __future__ import annotations

from lab.rollouts.trajectories.keepers import KEEPERS, RolloutKeeper

FROZEN = RolloutKeeper(
    "in a dataset version",
    """
SELECT unnest(line.rollouts) FROM datasets_row AS line JOIN datasets_version AS version ON version.id = line.version_id
JOIN datasets_dataset AS dataset ON dataset.id = version.dataset_id WHERE dataset.team_id = %(team)s
""",
)


def register_frozen_rollouts() -> None:
    KEEPERS.register("datasets", FROZEN)
