"""Metrics as charts show them: whatever way they are read, every spike is there, at its step, with its value."""

import math
from typing import Any

import numpy as np
import pytest
from django.db import connection
from django.utils import timezone

from lab.teams.accounts.models import Team
from lab.training.runs import metric_thinning, metrics
from lab.training.runs.models import Attempt, MetricChunk, Run

BUCKETS = 20  # so few that ten chunks are many


@pytest.fixture
def run(team: Team, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setattr(metrics, "CHUNK_POINTS", 100)
    return Run.objects.create(team=team, number=1, name="r", spec={}, recipe="grpo", trainer="grpo", task="mini_gsm", policy="tiny")


def add(run: Run, values: Any, first: int = 0, attempt: int = 1, piece: int = 37, name: str = "loss") -> None:
    points = [(first + place, float(value)) for place, value in enumerate(values)]
    with connection.cursor() as cursor:
        for start in range(0, len(points), piece):
            given = points[start : start + piece]
            axes = {"@time": [(step, 1e9 + step / 7) for step, _ in given], "@tokens": [(step, 64.0 * step) for step, _ in given]}
            metrics.append_metric_points(cursor, run.pk, attempt, {name: given, **axes}, start)


def begin(run: Run, number: int, from_step: int) -> None:
    Attempt.objects.create(run=run, number=number, from_step=from_step, host="h", device="cpu", started_at=timezone.now())


def noise(count: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).normal(size=count)


def assert_no_spike_is_lost(run: Run, name: str = "loss") -> metrics.Series:
    """In each of BUCKETS stretches the shown extremes are those of all points, and every shown point is one of them."""
    whole, shown = metrics.read_metric_series(run.pk, [name])[name], metric_thinning.read_thinned_metrics(run.pk, BUCKETS).series[name]
    points = dict(zip(whole.steps.tolist(), whole.values.tolist(), strict=True))
    for step, value in zip(shown.steps.tolist(), shown.values.tolist(), strict=True):
        assert points[step] == value or (math.isnan(points[step]) and math.isnan(value))
    assert np.all(np.diff(shown.steps) > 0)
    assert (shown.steps[0], shown.steps[-1]) == (whole.steps[0], whole.steps[-1])
    finite, seen = whole.values[np.isfinite(whole.values)], shown.values[np.isfinite(shown.values)]
    assert (seen.min(), seen.max()) == (finite.min(), finite.max())
    assert metric_thinning.read_thinned_metrics(run.pk, BUCKETS).counts[name] == len(whole)
    return shown


def chunks_read(run: Run) -> int:
    limits = metrics.read_attempt_cutoffs(run.pk)
    rows = [row for row in metric_thinning.fetch_binary_rows(metric_thinning.HEADS, [run.pk]) if row[0] == "loss"]
    return len(metric_thinning.plan_chunk_reads([metric_thinning.head_of(row, limits) for row in rows], BUCKETS).whole)


def test_a_long_series_is_an_envelope_made_of_its_chunks_alone(run: Run) -> None:
    values = noise(5000)
    values[1234], values[4321] = 90.0, -90.0
    add(run, values)
    shown = assert_no_spike_is_lost(run)
    assert shown.values[shown.steps == 1234].tolist() == [90.0]
    assert shown.values[shown.steps == 4321].tolist() == [-90.0]
    assert chunks_read(run) == 2  # of fifty: the first and the last
    assert len(shown) <= 2 * BUCKETS + 2


def test_a_short_series_is_what_it_was(run: Run) -> None:
    add(run, noise(300))
    whole = metrics.read_metric_series(run.pk)["loss"]
    shown = assert_no_spike_is_lost(run)
    again = metrics.compute_envelope(whole, BUCKETS)
    assert (shown.steps.tolist(), shown.values.tolist()) == (again.steps.tolist(), again.values.tolist())


def test_steps_a_resumed_attempt_replayed_do_not_show(run: Run) -> None:
    begin(run, 1, 0)
    values = noise(3000)
    values[2050:] = 1000.0  # all of it is replayed
    add(run, values)
    begin(run, 2, 2049)
    add(run, noise(1500, 1), first=2050, attempt=2)
    shown = assert_no_spike_is_lost(run)
    assert shown.values.max() < 100
    assert shown.steps[-1] == 3549


def test_a_step_that_was_measured_again_counts_once(run: Run) -> None:
    begin(run, 1, 0)
    values = noise(3000)
    values[1500] = 1000.0
    add(run, values)
    begin(run, 2, 2999)
    add(run, [0.5], first=1500, attempt=2)  # a measurement before the checkpoint, repeated after the resume
    assert assert_no_spike_is_lost(run).values.max() < 100


def test_values_that_are_not_finite_are_counted_and_hide_nothing(run: Run) -> None:
    values = noise(4000)
    values[700:950], values[1111], values[2222] = math.nan, math.inf, -70.0
    add(run, values)
    assert_no_spike_is_lost(run)
    assert metric_thinning.read_thinned_metrics(run.pk, BUCKETS).nonfinite == {"loss": 251}


def test_chunks_of_older_versions_are_read_whole(run: Run) -> None:
    add(run, noise(3000))
    MetricChunk.objects.filter(run=run, chunk__lt=15).update(lo_step=None, hi_step=None)
    assert_no_spike_is_lost(run)
    assert chunks_read(run) == 16


def test_a_chunk_with_a_step_twice_or_going_back_does_not_stand_for_its_points(run: Run) -> None:
    with connection.cursor() as cursor:
        metrics.append_metric_points(cursor, run.pk, 1, {"loss": [(1, 5.0), (1, 0.0), (3, 1.0)], "kl": [(5, 1.0)]})
        metrics.append_metric_points(cursor, run.pk, 1, {"kl": [(5, 0.0)], "steady": [(1, 1.0), (2, 3.0)]})
        metrics.append_metric_points(cursor, run.pk, 1, {"steady": [(3, -1.0), (4, 3.0)]})
    places = dict(MetricChunk.objects.filter(run=run).values_list("name", "lo_step"))
    assert places == {"loss": None, "kl": None, "steady": 3}
    assert MetricChunk.objects.get(run=run, name="steady").hi_step == 2
    assert metric_thinning.read_thinned_metrics(run.pk, BUCKETS).series["loss"].values.tolist() == [0.0, 1.0]


@pytest.mark.parametrize("count", [7, 250, 5000])
def test_axes_are_those_of_the_shown_steps(run: Run, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    begin(run, 1, 0)
    add(run, noise(count))
    begin(run, 2, count - 3)
    add(run, noise(10), first=count + 5, attempt=2)
    axis = metrics.read_metric_series(run.pk, ["@time"])["@time"]
    known = dict(zip(axis.steps.tolist(), axis.values.tolist(), strict=True))
    for few in (0, 3, 1000):  # read whole, some of each, cut out one by one
        monkeypatch.setattr(metric_thinning, "FEW", few)
        for steps in (np.arange(0, count + 20), np.array([0, count // 2, count + 7]), np.array([count + 99]), np.empty(0, dtype=np.int64)):
            assert metric_thinning.read_axes(run.pk, ["time"], steps, metrics.read_attempt_cutoffs(run.pk))["time"] == [
                known.get(step) for step in steps.tolist()
            ]


def test_an_axis_with_gaps(run: Run) -> None:
    with connection.cursor() as cursor:
        metrics.append_metric_points(cursor, run.pk, 1, {"@tokens": [(1, 10.0), (5, 50.0), (6, 60.0)]})
    assert metric_thinning.read_axes(run.pk, ["tokens"], np.arange(0, 9), metrics.read_attempt_cutoffs(run.pk))["tokens"] == [
        None,
        10.0,
        None,
        None,
        None,
        50.0,
        60.0,
        None,
        None,
    ]


def test_random_histories_lose_no_spike(run: Run) -> None:
    rng = np.random.default_rng(5)
    number, reached = 1, 0
    for _ in range(6):
        begin(run, number, reached)
        count = int(rng.integers(50, 1500))
        add(run, rng.standard_cauchy(count), first=reached + 1, attempt=number, piece=int(rng.integers(1, 250)))
        number, reached = number + 1, int(rng.integers(reached, reached + count + 1))
        assert_no_spike_is_lost(run)
