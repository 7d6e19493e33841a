import math

import numpy as np
import pytest

from lab.rollouts.browse.histograms import compute_field_histogram, compute_field_histograms
from lab.rollouts.browse.indexing import index_all
from lab.rollouts.trajectories.models import Rollout
from lab.teams.accounts.models import Team
from lab.training.runs.models import Run
from tests.lab.browse.stored import ask
from tests.lab.supervisor.spools import make_run, rollout, started, store


@pytest.fixture
def run(team: Team) -> Run:
    run = make_run(team)
    values = np.random.default_rng(3).normal(0, 2, 300).tolist()
    store(run, started(), *[rollout(step, 0, 0, reward=value, length=step % 7, advantage=None) for step, value in enumerate([*values, None])])
    return run


def test_bins_count_every_value_as_numpy_does(run: Run, team: Team) -> None:
    found = compute_field_histogram(team, ask("run=1"), "reward", 20)
    rewards = [value for value in Rollout.across_teams.values_list("reward", flat=True) if value is not None]
    counts, edges = np.histogram(rewards, 20)
    assert found.counts == counts.tolist()
    assert found.edges == pytest.approx(edges.tolist())


@pytest.mark.parametrize("address", ["run=1", "f=length:ge:2", "f=reward:ge:0&f=length:le:5", "q=7&f=reward:ne:0"])
def test_several_fields_together_are_what_each_is_alone(run: Run, team: Team, address: str) -> None:
    index_all()
    fields = ("reward", "length", "mean_entropy")
    asked = ask(address)
    together = compute_field_histograms(team, asked, fields)
    assert list(together) == list(fields)
    assert together == {field: compute_field_histogram(team, asked, field) for field in fields}
    assert sum(together["length"].counts) > 0


def test_a_fields_own_filters_are_shown_and_the_others_applied(run: Run, team: Team) -> None:
    asked = ask("run=1&f=reward:ge:0.5&f=reward:lt:1&f=length:eq:3")
    found = compute_field_histogram(team, asked, "reward")
    assert sum(found.counts) == Rollout.across_teams.filter(length=3, reward__isnull=False).count()
    assert found.chosen == (0.5, 1.0)
    assert compute_field_histogram(team, asked, "length").chosen == (3.0, 3.0)


def test_values_that_are_all_alike_are_one_bin_and_no_values_none(run: Run, team: Team) -> None:
    same = compute_field_histogram(team, ask("f=length:eq:3"), "length")
    assert sum(same.counts) == 301
    one = compute_field_histogram(team, ask("f=step:eq:3"), "length")
    assert (one.edges, one.counts) == ([3.0, 3.0], [1])
    assert compute_field_histogram(team, ask(), "advantage").counts == []
    assert compute_field_histogram(team, ask("run=99"), "reward").counts == []
    assert compute_field_histogram(team, ask("f=step:eq:99999999999"), "reward").counts == []


def test_values_that_are_not_finite_are_left_out(run: Run, team: Team) -> None:
    Rollout.across_teams.filter(step=0).update(reward=math.nan)
    Rollout.across_teams.filter(step=1).update(reward=math.inf)
    assert sum(compute_field_histogram(team, ask(), "reward").counts) == 298


def test_only_these_fields_have_histograms(team: Team) -> None:
    with pytest.raises(KeyError):
        compute_field_histogram(team, ask(), "completion")
