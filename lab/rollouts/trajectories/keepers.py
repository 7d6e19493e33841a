"""Who points to rollouts: a retention rule drops none that somebody points to. Rooms further right register theirs when their app starts."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from lab.lib.registry import Registry
from lab.teams.accounts.models import Team


@dataclass(frozen=True)
class RolloutKeeper:
    """``query``: SQL that gives the ids of the rollouts of the team ``%(team)s`` that are pointed to; ``find``: the same in Python, for what SQL
    cannot tell, asked once a round. ``words``: why such a rollout stays, as in "n are …".
    """

    words: str
    query: str = ""
    find: Callable[[Team], Iterable[int]] | None = None


KEEPERS: Registry[RolloutKeeper] = Registry("keeper of rollouts")
