"""The preview of a rule: what it would drop today of which runs, and what stays and why."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from django.db import connection
from django.db.models import Sum

from lab.lib.clock import database_now
from lab.rollouts.trajectories.keepers import KEEPERS
from lab.rollouts.trajectories.models import RolloutTokens
from lab.training.runs.models import OPEN, Run
from lab.watching.retention.models import RolloutRule
from lab.watching.retention.selection import build_parameters, exclude_tagged_runs, find_named_rollouts, select_ended_runs, write_pointed_rollouts
from lab.watching.usage.storage_use import bytes_of_a_rollout

BY_STEP, LEAVES = -1, -2  # ranks of rollouts that stay for their step, and of those that nothing keeps
STEP_WORDS = "of every {every} steps"
COUNTS = """
WITH {pointed}, kept AS MATERIALIZED (
    SELECT own.run_id, own.step, own.phase, own.group_index, min(pointed.rank) AS rank FROM pointed
    JOIN trajectories_rollout AS own ON own.id = pointed.id WHERE own.run_id = ANY(%(runs)s::uuid[]) GROUP BY 1, 2, 3, 4
)
SELECT rollout.run_id, CASE WHEN rollout.step %% NULLIF(%(every)s, 0) = 0 THEN {by_step} ELSE coalesce(kept.rank, {leaves}) END AS rank,
    count(*), {tokens}
FROM trajectories_rollout AS rollout LEFT JOIN kept ON kept.run_id = rollout.run_id AND kept.step = rollout.step AND kept.phase = rollout.phase
    AND kept.group_index = rollout.group_index {join}
WHERE rollout.run_id = ANY(%(runs)s::uuid[]) GROUP BY 1, 2
"""
TOKENS_JOIN = "LEFT JOIN trajectories_rollouttokens AS stored ON stored.rollout_id = rollout.id AND octet_length(stored.ids) > 0"


@dataclass
class RunDrop:
    """What of a run would be dropped: ``rollouts``, and of others that stay the token arrays (``tokens``). ``kept``: why → how many stay whole."""

    run: Run
    rollouts: int = 0
    tokens: int = 0
    kept: dict[str, int] = field(default_factory=lambda: defaultdict(int))


@dataclass(frozen=True)
class RetentionPlan:
    """``runs``: those that lose something, newest first. ``kept``: why rollouts of runs that are old enough stay → how many; ``spared``: of runs that
    are left alone. Bytes are estimated.
    """

    runs: list[RunDrop]
    kept: dict[str, int]
    spared: dict[str, int]
    bytes: int

    @property
    def rollouts(self) -> int:
        return sum(one.rollouts for one in self.runs)

    @property
    def tokens(self) -> int:
        return sum(one.tokens for one in self.runs)


def plan_retention(rule: RolloutRule) -> RetentionPlan:
    """As of now. Nothing is changed; ``rule`` need not be saved."""
    now, drops, due = database_now(), dict[UUID, RunDrop](), set[UUID]()
    named = find_named_rollouts(rule.team)
    for days, tokens_only in ((rule.rollouts_days, False), (rule.tokens_days, True)):
        if days is None:
            continue
        runs = [run for run in select_ended_runs(rule, days, now).defer("spec", "notes", "special_tokens") if run.pk not in due]
        due |= {run.pk for run in runs}
        drops |= count_run_drops(rule, runs, named, tokens_only=tokens_only)
    kept: dict[str, int] = defaultdict(int)
    for drop in drops.values():
        for words, count in drop.kept.items():
            kept[words] += count
    losing = sorted((drop for drop in drops.values() if drop.rollouts or drop.tokens), key=lambda drop: -drop.run.number)
    freed = sum(drop.rollouts for drop in losing) * bytes_of_a_rollout() + sum(drop.tokens for drop in losing) * bytes_of_a_rollout(RolloutTokens)
    return RetentionPlan(losing, dict(kept), count_spared_rollouts(rule, due), round(freed))


def count_run_drops(rule: RolloutRule, runs: Sequence[Run], named: tuple[list[int], list[int]], *, tokens_only: bool) -> dict[UUID, RunDrop]:
    drops = {run.pk: RunDrop(run) for run in runs}
    query = COUNTS.format(
        pointed=write_pointed_rollouts(),
        by_step=BY_STEP,
        leaves=LEAVES,
        tokens="count(stored.rollout_id)" if tokens_only else "0",
        join=TOKENS_JOIN if tokens_only else "",
    )
    words = {BY_STEP: STEP_WORDS.format(every=rule.keep_every), **{rank: keeper.words for rank, keeper in enumerate(KEEPERS.values())}}
    with connection.cursor() as cursor:
        cursor.execute(query, {**build_parameters(rule, named), "runs": list(drops)})
        for run, rank, count, tokens in cursor.fetchall():
            if rank != LEAVES:
                drops[run].kept[words[rank]] += count
            elif tokens_only:
                drops[run].tokens += tokens
            else:
                drops[run].rollouts += count
    return drops


def count_spared_rollouts(rule: RolloutRule, due: set[UUID]) -> dict[str, int]:
    """Why runs are left alone → how many rollouts they have."""
    runs: Any = Run.objects.filter(team=rule.team_id, binned_at=None)
    ended = runs.exclude(status__in=OPEN)
    counts = {
        "of runs that have not ended": runs.filter(status__in=OPEN),
        f"of runs tagged “{rule.keep_tag}”": ended.filter(tags__contains=[rule.keep_tag]) if rule.keep_tag else ended.none(),
        "of runs that ended too recently": exclude_tagged_runs(rule, ended).exclude(pk__in=due),
    }
    summed = {words: int(some.aggregate(sum=Sum("rollouts"))["sum"] or 0) for words, some in counts.items()}
    return {words: count for words, count in summed.items() if count}
