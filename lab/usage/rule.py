"""Quotas and estimates as launching and the lists of runs ask for them (lab.runs.holding)."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from lab.accounts.models import Team
from lab.runs.models import Run
from lab.usage import estimating, quotas
from lab.usage.estimating import Estimate
from trainers.spec import RunSpec


class QuotaRule:
    def held(self, runs: Sequence[Run]) -> dict[UUID, str]:
        return quotas.held_all(runs)

    def foreseen(self, team: Team, queue: str) -> str:
        found = quotas.standing(team)
        if not found.limited or quotas.refused(found, queue):
            return ""
        return quotas.why(found, queue, found.gpu_hours.limit is not None and quotas.takes_gpus(queue))

    def refused(self, team: Team, queue: str) -> str:
        return quotas.refused(quotas.standing(team), queue)

    def estimate(self, team: Team, queue: str, specs: Sequence[RunSpec], runs: int) -> Estimate:
        return estimating.estimate(team, queue, specs, runs)
