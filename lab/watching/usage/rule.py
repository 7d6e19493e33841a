"""Quotas and estimates as launching and the lists of runs ask for them (lab.training.runs.hold_reasons)."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from lab.teams.accounts.models import Team
from lab.training.runs.models import Run
from lab.watching.usage import estimates, quotas
from lab.watching.usage.estimates import LaunchEstimate
from lab.watching.usage.models import Quota
from trainers.contract.spec import RunSpec


class QuotaRule:
    def held(self, runs: Sequence[Run]) -> dict[UUID, str]:
        return quotas.held_all(runs)

    def foreseen(self, team: Team, queue: str) -> str:
        quota = Quota.objects.filter(team=team).first()
        if quota is None:
            return ""
        standing = quotas.compute_quota_standing(team, quota)
        if not standing.limited or quotas.explain_queue_refusal(team, standing.queues, queue):
            return ""
        return quotas.explain_quota_block(standing, queue, standing.gpu_hours.limit is not None and quotas.takes_gpus(queue))

    def refused(self, team: Team, queue: str) -> str:
        queues = Quota.objects.filter(team=team).values_list("queues", flat=True).first()
        return quotas.explain_queue_refusal(team, queues, queue)

    def estimate(self, team: Team, queue: str, specs: Sequence[RunSpec], runs: int) -> LaunchEstimate:
        return estimates.estimate_launch(team, queue, specs, runs)
