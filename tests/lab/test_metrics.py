import math
import uuid

import numpy as np
import pytest
from django.db import connection
from django.utils import timezone

from lab.teams.accounts.models import Team
from lab.training.runs import metrics
from lab.training.runs.models import Attempt, MetricChunk, Run


@pytest.fixture
def run(team: Team) -> Run:
    return Run.objects.create(team=team, number=1, name="r", spec={}, recipe="grpo", trainer="grpo", task="mini_gsm", policy="tiny")


def add(run: Run, points: metrics.Points, attempt: int = 1, offset: int = 0) -> metrics.Points:
    with connection.cursor() as cursor:
        return metrics.append_metric_points(cursor, run.pk, attempt, points, offset)


def begin(run: Run, number: int, from_step: int) -> None:
    Attempt.objects.create(run=run, number=number, from_step=from_step, host="h", device="cpu", started_at=timezone.now())


def test_points_fill_chunks_and_come_back_in_order(run: Run) -> None:
    for start in range(0, 2500, 7):
        add(run, {"loss": [(step, step * 0.5) for step in range(start, min(start + 7, 2500))]})
    assert list(MetricChunk.objects.filter(run=run).order_by("chunk").values_list("count", flat=True)) == [1000, 1000, 500]
    series = metrics.read_metric_series(run.pk)["loss"]
    assert series.steps.tolist() == list(range(2500))
    assert np.array_equal(series.values, np.arange(2500) * 0.5)


def test_one_append_may_fill_several_chunks(run: Run) -> None:
    add(run, {"loss": [(0, 1.0)]})
    add(run, {"loss": [(step, 2.0) for step in range(1, 3001)], "reward": [(1, 0.0)]})
    assert list(MetricChunk.objects.filter(run=run, name="loss").order_by("chunk").values_list("count", flat=True)) == [1000, 1000, 1000, 1]
    assert len(metrics.read_metric_series(run.pk, ["loss"])["loss"]) == 3001
    assert list(metrics.read_metric_series(run.pk, ["loss"])) == ["loss"]


def test_a_chunk_knows_its_range_over_finite_values(run: Run) -> None:
    add(run, {"loss": [(1, math.nan), (2, 3.0)], "kl": [(1, math.inf)]})
    add(run, {"loss": [(3, -1.0), (4, math.inf)]})
    chunk = MetricChunk.objects.get(run=run, name="loss")
    assert (chunk.lo, chunk.hi, chunk.first_step, chunk.last_step) == (-1.0, 3.0, 1, 4)
    assert MetricChunk.objects.get(run=run, name="kl").hi is None
    values = metrics.read_metric_series(run.pk)["loss"].values
    assert math.isnan(values[0])
    assert values[3] == math.inf


def test_an_axis_takes_a_step_once_and_a_metric_of_a_later_event_of_that_step_is_kept(run: Run) -> None:
    add(run, {"@time": [(5, 100.0)], "loss": [(5, 1.0)]}, offset=10)
    stored = add(run, {"@time": [(5, 101.0), (6, 102.0)], "heldout/reward": [(5, 0.4)]}, offset=20)
    assert stored == {"@time": [(6, 102.0)], "heldout/reward": [(5, 0.4)]}
    assert metrics.read_metric_series(run.pk)["@time"].values.tolist() == [100.0, 102.0]


def test_steps_a_later_attempt_replayed_are_left_out(run: Run) -> None:
    begin(run, 1, 0)
    add(run, {"loss": [(step, 1.0) for step in range(1, 11)]}, attempt=1)
    begin(run, 2, 6)
    add(run, {"loss": [(7, 2.0), (8, 2.0)]}, attempt=2)
    begin(run, 3, 4)
    add(run, {"loss": [(5, 3.0)]}, attempt=3)
    series = metrics.read_metric_series(run.pk)["loss"]
    assert series.steps.tolist() == [1, 2, 3, 4, 5]
    assert series.values.tolist() == [1.0, 1.0, 1.0, 1.0, 3.0]


def test_of_a_step_measured_again_by_a_resumed_attempt_the_newest_value_counts(run: Run) -> None:
    begin(run, 1, 0)
    add(run, {"heldout/reward": [(0, 0.1)]}, attempt=1)
    begin(run, 2, 0)
    add(run, {"heldout/reward": [(0, 0.2)]}, attempt=2)
    assert metrics.read_metric_series(run.pk)["heldout/reward"].values.tolist() == [0.2]


def test_reading_after_an_offset_returns_only_what_came_later(run: Run) -> None:
    add(run, {"loss": [(1, 1.0), (2, 2.0)]}, offset=100)
    add(run, {"loss": [(3, 3.0)], "kl": [(3, 0.0)]}, offset=250)
    assert metrics.read_metric_series(run.pk, after=100)["loss"].steps.tolist() == [3]
    assert metrics.read_metric_series(run.pk, after=250) == {}


@pytest.mark.feature(18)
def test_an_envelope_keeps_every_spike_and_its_size_is_bounded() -> None:
    values = np.sin(np.arange(100_000) / 900.0)
    values[41_234], values[77_777] = 50.0, -50.0
    values[500:600] = np.nan
    thin = metrics.compute_envelope(metrics.Series("loss", np.arange(100_000), values), 300)
    assert len(thin) <= 602
    assert thin.values[thin.steps == 41_234].tolist() == [50.0]
    assert thin.values[thin.steps == 77_777].tolist() == [-50.0]
    assert (thin.steps[0], thin.steps[-1]) == (0, 99_999)
    assert np.all(np.diff(thin.steps) > 0)
    assert not np.isnan(thin.values).any()


def test_an_envelope_shows_not_a_number_where_nothing_else_is() -> None:
    values = np.concatenate((np.ones(100), np.full(100, np.nan)))
    thin = metrics.compute_envelope(metrics.Series("loss", np.arange(200), values), 2)
    assert np.isnan(thin.values[-1])


def test_names_leave_axes_out_and_sparklines_cover_many_runs_in_two_queries(run: Run, team: Team, django_assert_num_queries: object) -> None:
    other = Run.objects.create(team=team, number=2, name="r", spec={}, recipe="grpo", trainer="grpo", task="t", policy="tiny")
    add(run, {"@time": [(1, 1.0)], "reward": [(1, 0.5)], "kl": [(1, 0.0)]})
    add(other, {"reward": [(step, float(step)) for step in range(500)]})
    assert metrics.list_metric_names(run.pk) == ["kl", "reward"]
    with django_assert_num_queries(2):  # type: ignore[operator]
        found = metrics.read_sparkline_series([run.pk, other.pk, uuid.uuid4()], "reward", 10)
    assert found[run.pk].values.tolist() == [0.5]
    assert len(found[other.pk]) <= 22
