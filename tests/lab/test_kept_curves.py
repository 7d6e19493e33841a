"""What is kept of a run's charts: the same as without, read once for a place in the spool, and anew when the run has gone on or was resumed."""

import msgspec
import pytest
from django.core.cache import caches

from lab.teams.accounts.models import Team, User
from lab.training.runs import metric_thinning
from lab.training.runs.models import Run
from lab.training.runs.snapshot import build_run_snapshot
from tests.lab.supervisor.spools import make_run, measured, started, steps, store

pytestmark = pytest.mark.django_db


def read(run: Run, viewer: User) -> dict:
    return msgspec.json.decode(msgspec.json.encode(build_run_snapshot(Run.across_teams.get(pk=run.pk), viewer)))


def test_curves_are_read_once_for_a_place_in_the_spool(team: Team, owner: User, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    read_thinned_metrics = metric_thinning.read_thinned_metrics
    monkeypatch.setattr(metric_thinning, "read_thinned_metrics", lambda *args: asked.append(args) or read_thinned_metrics(*args))
    run = make_run(team)
    store(run, started(), *steps(1, 3))
    first = read(run, owner)
    assert read(run, owner) == first
    assert len(asked) == 1
    caches["curves"].clear()
    assert read(run, owner) == first
    assert len(asked) == 2


def test_a_run_that_goes_on_shows_its_new_points(team: Team, owner: User) -> None:
    run = make_run(team)
    store(run, started(), *steps(1, 3))
    assert read(run, owner)["series"]["loss"]["steps"] == [1, 2, 3]
    store(run, *steps(4, 5))
    assert read(run, owner)["series"]["loss"]["steps"] == [1, 2, 3, 4, 5]


def test_a_resumed_run_shows_what_it_measured_again(team: Team, owner: User) -> None:
    run = make_run(team)
    store(run, started(), *steps(1, 3))
    assert read(run, owner)["marks"] == []
    store(run, started(attempt=2, from_step=1), measured(2, attempt=2, values={"loss": 9.0}))
    again = read(run, owner)
    assert again["series"]["loss"] == {"steps": [1, 2], "values": [0.5, 9.0]}
    assert [mark["kind"] for mark in again["marks"]] == ["resume"]


def test_two_runs_at_the_same_place_are_not_mixed_up(team: Team, owner: User) -> None:
    runs = [make_run(team), make_run(team)]
    for run, value in zip(runs, (1.0, 2.0), strict=True):
        store(run, started(), measured(1, values={"loss": value}))
    assert [read(run, owner)["series"]["loss"]["values"] for run in runs] == [[1.0], [2.0]]
    assert Run.across_teams.get(pk=runs[0].pk).ingested == Run.across_teams.get(pk=runs[1].pk).ingested
