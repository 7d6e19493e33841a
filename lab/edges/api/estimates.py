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
    """From the least to the most."""

    low: float
    high: float


class EstimateOut(Schema):
    runs: int = Field(description="That would be queued, all stages of a chain counting as one.")
    seconds: SpanOut | None = Field(description="All runs one after another, by the team's finished runs like them; null while there is none.")
    gpu_hours: SpanOut | None
    alike: list[int] = Field(description="Numbers of the finished runs that this rests on.")
    gpu_hours_left: float | None = Field(description="Of the month's quota; null without one.")
    passes: str = Field(description="Whether the month's GPU-hours are passed by it: `passes`, `may pass` or empty.")
    waits: str = Field(description="Why it would wait for a quota now; empty when it would not.")


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
