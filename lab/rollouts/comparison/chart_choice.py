"""Which charts a comparison has: one a metric, the ones most looked at first, the rest folded by section."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.db.models import Count

from lab.training.runs.charts import PANELS
from lab.training.runs.models import MetricChunk, Run

FIRST = (
    "heldout/accuracy",
    "heldout/reward",
    "reward",
    "rewards/margins",
    "rewards/accuracies",
    "entropy",
    "kl",
    "completions/mean_length",
    "loss",
    "grad_norm",
    "frac_reward_zero_std",
    "completions/clipped_ratio",
)


def count_runs_by_metric(runs: Sequence[Run]) -> dict[str, int]:
    """Metric → how many of the runs have it."""
    chunks = MetricChunk.objects.filter(run__in=list(runs), chunk=0).exclude(name__startswith="@")
    return dict(chunks.values_list("name").annotate(Count("run", distinct=True)).order_by("name"))


def build_metric_charts(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """JSON of every metric that any of the runs has: FIRST in their order, then by section and name."""
    charts = [{"metric": name, "runs": count, **describe_metric_chart(name)} for name, count in count_runs_by_metric(runs).items()]
    return sorted(charts, key=lambda chart: (FIRST.index(chart["metric"]) if chart["first"] else len(FIRST), chart["section"], chart["metric"]))


def describe_metric_chart(name: str) -> dict[str, Any]:
    for panel in PANELS:
        if label := panel.present({name}).get(name):
            alone = len(panel.metrics) == 1 and not panel.pattern
            title = panel.title if alone or label in ("total", "both") else f"{panel.title}: {label}"
            return {"title": title, "unit": panel.unit, "section": panel.section, "points": panel.points, "first": name in FIRST}
    return {"title": name, "unit": "", "section": name.rpartition("/")[0] or "Other", "points": False, "first": name in FIRST}
