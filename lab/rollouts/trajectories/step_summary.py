"""A step's rollouts in a few numbers, read from the index that lists answer from."""

from __future__ import annotations

from dataclasses import dataclass

from django.db.models import Avg, Count, F, Max, Min, Q, QuerySet, StdDev

from lab.rollouts.trajectories.models import Rollout


@dataclass(frozen=True)
class StepSummary:
    """``reward``, ``length`` (tokens) and ``entropy`` (nats) are means over rollouts, None where none was measured; ``cut`` is the share,
    of those whose end is recorded, that ran out of tokens. ``zero_variance`` is the share of groups whose rollouts all earned the same, None where no
    group has two.
    """

    rollouts: int
    groups: int
    reward: float | None
    spread: float | None
    length: float | None
    entropy: float | None
    cut: float | None
    zero_variance: float | None
    zero_groups: int
    filtered: int

    @property
    def cut_percent(self) -> float | None:
        return None if self.cut is None else 100 * self.cut

    @property
    def zero_percent(self) -> float | None:
        return None if self.zero_variance is None else 100 * self.zero_variance


def summarize_step_rollouts(rows: QuerySet[Rollout]) -> StepSummary:
    """The numbers of ``rows``: the rollouts of one step of one phase."""
    totals = rows.aggregate(
        rollouts=Count("pk"),
        mean_reward=Avg("reward"),
        spread=StdDev("reward", sample=True),
        mean_length=Avg("length"),
        entropy=Avg("mean_entropy"),
        cut=Count("pk", filter=Q(finish_reason="length")),
        ended=Count("pk", filter=~Q(finish_reason="")),
        filtered=Count("pk", filter=~Q(filtered="")),
    )
    groups = rows.values("group").annotate(count=Count("pk"), low=Min("reward"), high=Max("reward")).order_by()
    several = Q(count__gt=1)
    counts = groups.aggregate(groups=Count("group"), several=Count("group", filter=several), same=Count("group", filter=several & Q(low=F("high"))))
    total = totals["rollouts"]
    return StepSummary(
        rollouts=total,
        reward=totals["mean_reward"],
        spread=totals["spread"],
        length=totals["mean_length"],
        entropy=totals["entropy"],
        cut=totals["cut"] / totals["ended"] if totals["ended"] else None,
        groups=counts["groups"],
        zero_variance=counts["same"] / counts["several"] if counts["several"] else None,
        zero_groups=counts["same"],
        filtered=totals["filtered"],
    )
