"""Rollouts that people tagged, rated, marked or commented on stay, whatever a retention rule says."""

from __future__ import annotations

from lab.rollouts.trajectories.keepers import KEEPERS, RolloutKeeper

TAGGED = """
SELECT tagged.rollout_id FROM annotations_rollouttag AS tagged JOIN annotations_tag AS tag ON tag.id = tagged.tag_id
WHERE tag.team_id = %(team)s
"""
COMMENTED = "SELECT rollout_id FROM annotations_comment WHERE team_id = %(team)s AND rollout_id IS NOT NULL AND deleted_at IS NULL"
OF_TEAM = """
SELECT said.rollout_id FROM {table} AS said JOIN trajectories_rollout AS rollout ON rollout.id = said.rollout_id
JOIN runs_run AS run ON run.id = rollout.run_id WHERE run.team_id = %(team)s
"""
LABELLED = OF_TEAM + " AND said.withdrawn_at IS NULL"
PREFERRED = LABELLED.format(table="annotations_turnpreference")
REJECTED = PREFERRED.replace("said.rollout_id", "said.against_id")
ANNOTATED = RolloutKeeper(
    "tagged, rated, marked or commented on",
    " UNION ALL ".join(
        (
            TAGGED,
            COMMENTED,
            OF_TEAM.format(table="annotations_rating"),
            OF_TEAM.format(table="annotations_stepmark"),
            LABELLED.format(table="annotations_turnverdict"),
            PREFERRED,
            REJECTED,
        ),
    ),
)


def register_annotated_rollouts() -> None:
    KEEPERS.register("annotations", ANNOTATED)
