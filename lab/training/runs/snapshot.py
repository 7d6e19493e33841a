"""What a run page starts from: metrics, panels, marks and state, all of one moment, with the cursor that live deltas go on from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import msgspec
import numpy as np
from django.core.cache import caches

from lab.lib.snapshots import open_read_snapshot
from lab.teams.accounts.models import User
from lab.training.runs import live, metric_thinning, metrics
from lab.training.runs.charts import build_chart_panels
from lab.training.runs.curve_values import read_heldout_prompts
from lab.training.runs.models import Run
from lab.training.runs.reward_weights import EDITED_WEIGHTS, collect_reward_weights
from lab.training.runs.run_marks import list_run_marks
from lab.training.runs.stack import Stack, load_method_entries, page_of, stack_of

BUCKETS = 1000  # a metric of more than twice as many points is sent as the extremes of so many step ranges
SAMPLES = {  # of trainers.contract.batches
    "grpo": "completions",
    "rloo": "completions",
    "sft": "sequences",
    "dpo": "pairs",
    "orpo": "pairs",
    "cpo": "pairs",
    "online-dpo": "pairs",
    "gkd": "sequences",
    "reward": "pairs",
    "kto": "answers",
    "procedure": "completions",
}
CSV_AXES = ("step", "time", "tokens")


def build_run_snapshot(run: Run, viewer: User) -> dict[str, Any]:
    """For ``msgspec``, which writes what is JSON already (``axes`` and ``series``) as it is. ``run`` was read in the snapshot that the caller holds
    open (``open_read_snapshot``), so that the cursor and what stands before it belong together.
    """
    curves = read_run_curves(run)
    methods = describe_run_methods(stack_of(run.spec))
    weights = collect_reward_weights(run.spec) | run.latest.get(EDITED_WEIGHTS, {})
    return {
        "cursor": run.ingested,
        "attempt": run.attempt,
        "axes": msgspec.Raw(curves.axes),
        "series": msgspec.Raw(curves.series),
        "thinned": curves.thinned,
        "nonfinite": curves.nonfinite,
        "abstained": curves.abstained,
        "panels": build_chart_panels(curves.names, run.trainer, methods, weights, count_heldout_prompts(run)),
        "methods": [{key: entry[key] for key in ("name", "title", "idea", "url")} for entry in methods],
        "marks": list_run_marks(run, viewer),
        "samples": count_samples_per_step(run),
        "state": live.describe_run_state(run, getattr(run, "read_at", None)),
    }


def count_heldout_prompts(run: Run) -> int | None:
    """Over how many prompts the run's evaluations are means: as the spec says, or as the trainer found in the file of a task of the team."""
    if (told := read_heldout_prompts(run.spec)) is not None or not (run.spec.get("task") or {}).get("file"):
        return told
    inputs = run.attempts.exclude(inputs=None).order_by("-number").values_list("inputs", flat=True).first()
    return int((inputs or {}).get("heldout_rows") or 0) or None


@dataclass(frozen=True)
class Curves:
    """The metrics of a run as its charts draw them; ``axes`` and ``series`` are JSON."""

    names: list[str]
    axes: bytes
    series: bytes
    thinned: bool
    nonfinite: dict[str, int]
    abstained: dict[str, int]


def read_run_curves(run: Run) -> Curves:
    """The run's curves; kept by the place in the spool up to which they tell, because a page is opened more often than a run goes on."""
    key = f"{run.pk}:{run.ingested}"
    kept: Curves | None = caches["curves"].get(key) if run.ingested else None
    if kept is not None:
        return kept
    thinned_metrics = metric_thinning.read_thinned_metrics(run.pk, BUCKETS)
    series = {name: {"steps": curve.steps.tolist(), "values": encode_series_values(curve)} for name, curve in thinned_metrics.series.items()}
    thinned = any(len(curve) < thinned_metrics.counts[name] for name, curve in thinned_metrics.series.items())
    axes = msgspec.json.encode(read_run_axes(run, thinned_metrics))
    curves = Curves(list(thinned_metrics.series), axes, msgspec.json.encode(series), thinned, thinned_metrics.nonfinite, thinned_metrics.abstained)
    if run.ingested:
        caches["curves"].set(key, curves)
    return curves


def encode_series_values(series: metrics.Series) -> list[float | str]:
    values: list[float | str] = series.values.tolist()
    return values if np.isfinite(series.values).all() else [live.encode_json_number(float(value)) for value in values]


def describe_run_methods(stack: Stack) -> list[dict[str, Any]]:
    """The catalogue's entries of the run's base and methods; one it does not know has only a name, under which its metrics are shown."""
    known = load_method_entries(stack.names)
    blank = {"idea": "", "panels": [], "url": ""}
    return [{**known[name], "url": page_of(name)} if name in known else {**blank, "name": name, "title": name} for name in stack.names]


def read_run_axes(run: Run, thinned: metric_thinning.ThinnedMetrics) -> dict[str, list[Any]]:
    """Time and tokens of every step that a shown point lies on; null where a step has none."""
    series_by_name = thinned.series
    steps = np.sort(np.concatenate([curve.steps for curve in series_by_name.values()])) if series_by_name else np.empty(0, dtype=np.int64)
    steps = steps[np.append(True, steps[1:] != steps[:-1])] if steps.size else steps  # numpy's unique hashes them, which takes four times as long
    return {"step": steps.tolist(), **metric_thinning.read_axes(run.pk, ("time", "tokens"), steps, thinned.limits)}


def count_samples_per_step(run: Run) -> dict[str, Any] | None:
    """What one optimizer step of the run trains on, by the trainer's own count: its name and how many. None where the spec does not say, as of
    a script elsewhere.
    """
    training = run.spec.get("training", {})
    sizes = [training.get("per_device_train_batch_size"), training.get("gradient_accumulation_steps", 1)]
    if run.trainer not in SAMPLES or not all(isinstance(size, int) and size > 0 for size in sizes):
        return None
    return {"name": SAMPLES[run.trainer], "per_step": sizes[0] * sizes[1]}


def csv_rows(run: Run, requested: Iterable[str]) -> tuple[list[str], Iterator[list[Any]]]:
    """The metrics in the file and its rows, one a step; a metric that was not logged at a step leaves its cell empty."""
    with open_read_snapshot():
        known = metrics.list_metric_names(run.pk)
        chosen = set(requested)
        names = [name for name in known if not chosen or name in chosen]
        series = metrics.read_metric_series(run.pk, [*names, "@time", "@tokens"])
    values = {name: dict(zip(curve.steps.tolist(), curve.values.tolist(), strict=True)) for name, curve in series.items()}
    steps = sorted({step for name in names for step in values.get(name, {})})

    def rows() -> Iterator[list[Any]]:
        for step in steps:
            moment, tokens = values.get("@time", {}).get(step), values.get("@tokens", {}).get(step)
            when = datetime.fromtimestamp(moment, UTC).isoformat() if moment is not None else ""
            yield [step, when, int(tokens) if tokens is not None else "", *(values.get(name, {}).get(step, "") for name in names)]

    return names, rows()
