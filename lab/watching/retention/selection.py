"""Which rollouts a rule drops: of which runs, and which of theirs stay because somebody points to them. The preview and the chore both ask here.

A group is dropped whole or stays whole: its advantages say nothing without its other answers.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Q
from django.db.models.functions import Greatest

from lab.rollouts.trajectories.keepers import KEEPERS
from lab.teams.accounts.models import Team
from lab.training.runs.models import OPEN, Run
from lab.watching.retention.models import RolloutRule

# ``rank``: which of KEEPERS. Of ``named`` (ids and ranks) are those that Python found.
POINTED = """
pointed(id, rank) AS MATERIALIZED ({keepers}SELECT * FROM unnest(%(named)s::bigint[], %(ranks)s::int[]) AS named(id, rank))
"""
LEAVES_BY_STEP = "rollout.step %% NULLIF(%(every)s, 0) IS DISTINCT FROM 0"


def write_pointed_rollouts() -> str:
    """The part of a WITH clause that all statements here begin with."""
    queries = [f"SELECT found.id, {rank} FROM ({one.query}) AS found(id) UNION ALL " for rank, one in enumerate(KEEPERS.values()) if one.query]  # noqa: S608 constants only
    return POINTED.format(keepers="\n".join(queries))


def find_named_rollouts(team: Team) -> tuple[list[int], list[int]]:
    """(ids, ranks) of what the keepers that are no SQL point to."""
    ids: list[int] = []
    ranks: list[int] = []
    for rank, keeper in enumerate(KEEPERS.values()):
        if keeper.find is not None:
            found = sorted(keeper.find(team))
            ids += found
            ranks += [rank] * len(found)
    return ids, ranks


def build_parameters(rule: RolloutRule, named: tuple[Collection[int], Collection[int]]) -> dict[str, Any]:
    ids, ranks = named
    return {"team": rule.team_id, "named": list(ids), "ranks": list(ranks), "every": rule.keep_every}


def select_ended_runs(rule: RolloutRule, days: int, now: datetime) -> Any:
    """The team's runs that ended ``days`` ago or earlier and may lose rollouts. One that was read from files counts from when it was read."""
    ended = Run.objects.filter(team=rule.team_id, binned_at=None).exclude(status__in=OPEN)
    return exclude_tagged_runs(rule, ended.annotate(over_at=Greatest("finished_at", "created_at")).filter(over_at__lte=now - timedelta(days=days)))


def exclude_tagged_runs(rule: RolloutRule, runs: Any) -> Any:
    return runs.exclude(Q(tags__contains=[rule.keep_tag])) if rule.keep_tag else runs
