"""Who points to rollouts: a retention rule drops none that somebody points to. Rooms further right register theirs when their app starts."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

from django.db import connection

from lab.lib.numbers import write_id_array
from lab.lib.refusals import Refusal
from lab.lib.registry import Registry
from lab.teams.accounts.models import Team

HOLD = 0x68_6F_6C_64  # class of PostgreSQL advisory locks, one a team: shared by who is about to point to rollouts, alone by who drops some


@dataclass(frozen=True)
class RolloutKeeper:
    """``query``: SQL that gives the ids of the rollouts of the team ``%(team)s`` that are pointed to; ``find``: the same in Python, for what SQL
    cannot tell, asked once a round. ``words``: why such a rollout stays, as in "n are …".
    """

    words: str
    query: str = ""
    find: Callable[[Team], Iterable[int]] | None = None


KEEPERS: Registry[RolloutKeeper] = Registry("keeper of rollouts")


def hold_rollouts(team: Team, ids: Collection[int]) -> None:
    """Until the transaction ends no retention rule drops rollouts of the team. Raises Refusal where one has dropped some of ``ids`` meanwhile."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock_shared(%s, %s)", [HOLD, team.pk])
        cursor.execute("SELECT count(*) FROM trajectories_rollout WHERE id = ANY(%s::bigint[])", [write_id_array(ids)])
        if cursor.fetchone()[0] < len(ids):
            raise Refusal("Some of these rollouts have just been dropped by the team's retention rule.", "Try again: the others are still there.")


def hold_for_dropping(team_id: int) -> bool:
    """Until the transaction ends nobody begins to point to rollouts of the team; False where somebody is at it."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_xact_lock(%s, %s)", [HOLD, team_id])
        return bool(cursor.fetchone()[0])
