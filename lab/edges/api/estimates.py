"""How long runs will take that are not launched yet, as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ninja import Field, Schema

from lab.teams.accounts.models import Team
from lab.training.runs import hold_reasons
from lab.watching.usage import estimates
from lab.watching.usage.ledger import HOUR
from trainers.contract.spec import RunSpec


class SpanOut(Schema):
    """Lower and upper end of a range."""

    low: float
    high: float


class EstimateOut(Schema):
    runs: int = Field(description="Runs that would be queued; all stages of a chain count as one.")
    seconds: SpanOut | None = Field(
        description="Total for all runs one after another, based on similar finished runs of the team; null if there are none."
    )
    gpu_hours: SpanOut | None
    alike: list[int] = Field(description="Numbers of the finished runs that the estimate is based on.")
    gpu_hours_left: float | None = Field(description="Left of the month's quota; null without a quota.")
    passes: str = Field(description="Whether it exceeds the month's GPU-hours: `passes`, `may pass` or empty.")
    waits: str = Field(description="Why it would wait for a quota now; empty if it would not.")


def estimate_launch_cost(team: Team, queue: str, specs: Sequence[RunSpec], runs: int = 1) -> dict[str, Any]:
    """Of the stages ``specs``, launched ``runs`` times."""
    estimate = estimates.estimate_launch(team, queue, specs, runs)
    known, left = not estimate.unknown, estimate.left
    return {
        "runs": runs,
        "seconds": estimate.whole if known else None,
        "gpu_hours": estimate.gpu_time.times(1 / HOUR) if known else None,
        "alike": sorted({pace.number for stage in estimate.stages for pace in stage.paces}),
        "gpu_hours_left": max(0.0, left.limit - left.used) if left is not None and left.limit is not None else None,
        "passes": estimate.passes,
        "waits": hold_reasons.predict_hold_reasons(team, queue),
    }
