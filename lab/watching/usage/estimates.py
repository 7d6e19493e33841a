"""How long runs will take that are not launched yet, how much GPU time, and whether the month's quota has that: by finished runs like them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from lab.lib.numbers import format_number
from lab.lib.timeago import format_duration
from lab.teams.accounts.models import Team
from lab.watching.usage import quotas
from lab.watching.usage.ledger import HOUR
from lab.watching.usage.quotas import QuotaUse
from lab.watching.usage.similar_runs import Pace, find_similar_paces
from trainers.contract.spec import RunSpec


@dataclass(frozen=True)
class DurationRange:
    """From the least to the most, in seconds."""

    low: float
    high: float

    def times(self, count: float) -> DurationRange:
        return DurationRange(self.low * count, self.high * count)

    @property
    def words(self) -> str:
        return format_value_range(format_duration(self.low), format_duration(self.high))


@dataclass(frozen=True)
class StageEstimate:
    """One run of what is launched. ``most`` is its time limit in seconds."""

    trainer: str
    task: str
    steps: int
    paces: tuple[Pace, ...]
    most: float

    @property
    def pace(self) -> str:
        return (
            format_value_range(format_number(min(pace.seconds for pace in self.paces)), format_number(max(pace.seconds for pace in self.paces)))
            + " s"
        )

    @property
    def same_task(self) -> bool:
        return all(pace.task == self.task for pace in self.paces)

    @property
    def time(self) -> DurationRange:
        took = [min(self.most, pace.seconds * self.steps) for pace in self.paces]
        return DurationRange(min(took), max(took))

    @property
    def gpu_time(self) -> DurationRange:
        took = [pace.gpu_seconds * min(self.steps, self.most / pace.seconds if pace.seconds else self.steps) for pace in self.paces]
        return DurationRange(min(took), max(took))


@dataclass(frozen=True)
class LaunchEstimate:
    """Of a launch of ``runs`` times all ``stages``. ``left`` is the month's GPU-hours where they are limited."""

    stages: tuple[StageEstimate, ...]
    runs: int
    left: QuotaUse | None
    starts_anew: str  # the day from which there are GPU-hours again

    @property
    def unknown(self) -> list[StageEstimate]:
        return [stage for stage in self.stages if not stage.paces]

    @property
    def each(self) -> DurationRange:
        return sum_spans(stage.time for stage in self.stages)

    @property
    def whole(self) -> DurationRange:
        return self.each.times(self.runs)

    @property
    def gpu_time(self) -> DurationRange:
        return sum_spans(stage.gpu_time for stage in self.stages).times(self.runs)

    @property
    def passes(self) -> str:
        """Whether the month's GPU-hours are passed by it: ``passes``, ``may pass`` or empty."""
        if self.left is None or self.left.limit is None or self.unknown or not self.gpu_time.high:
            return ""
        room = (self.left.limit - self.left.used) * HOUR
        return "passes" if self.gpu_time.low > room else "may pass" if self.gpu_time.high > room else ""


def estimate_launch(team: Team, queue: str, specs: Sequence[RunSpec], runs: int = 1) -> LaunchEstimate:
    """Of the stages ``specs``, launched ``runs`` times on the queue."""
    paces_by_spec = find_similar_paces(team, specs, queue)
    stages = [
        StageEstimate(spec.training.trainer, spec.task.name, spec.training.max_steps, tuple(paces), (spec.limits.minutes or float("inf")) * 60)
        for spec, paces in zip(specs, paces_by_spec, strict=True)
    ]
    standing = quotas.compute_quota_standing(team)
    limited = standing.gpu_hours.limit is not None
    return LaunchEstimate(tuple(stages), runs, standing.gpu_hours if limited else None, f"{standing.month.next.start:%-d %B}")


def sum_spans(spans: Iterable[DurationRange]) -> DurationRange:
    spans_read = list(spans)
    return DurationRange(sum(span.low for span in spans_read), sum(span.high for span in spans_read))


def format_value_range(low: str, high: str) -> str:
    return low if low == high else f"{low} to {high}"
