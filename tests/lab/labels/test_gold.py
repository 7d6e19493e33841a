"""Gold items: verified answers, mixed in so that nobody can tell them."""

from typing import Any

import numpy as np
import pytest
from django.http import QueryDict

from lab.labelling.labels import queue_items
from lab.labelling.labels.gold import mix_gold_items, select_gold_items
from lab.labelling.labels.models import Kind, Strategy
from lab.labelling.labels.pairs import make_items_from_pool
from lab.labelling.labels.pool import read_pool
from lab.labelling.labels.recipe import Recipe
from lab.rollouts.browse.selection import Selection
from lab.rollouts.trajectories.models import Rollout
from lab.teams.accounts.models import Team, User
from tests.lab.supervisor.spools import make_run, rollout, started, store


def recipe(**fields: Any) -> Recipe:
    return Recipe(Selection.read(QueryDict("")), **{"per": 0, "most": 100, "gold": 10, "gold_by": "correct", **fields})


@pytest.fixture
def stored(team: Team) -> None:
    """40 groups of four answers: the first right, the second half right, the others wrong."""
    values = (1.0, 0.5, 0.0, 0.0)
    store(
        make_run(team),
        started(),
        *(
            rollout(step, 0, at, completion=f"{step} {at}", rewards={"correct": value}, reward=value)
            for step in range(40)
            for at, value in enumerate(values)
        ),
    )


def test_one_side_is_right_and_the_other_wrong(team: Team, stored: None) -> None:
    found = select_gold_items(read_pool(team, recipe()), recipe())
    assert len(found) == 10
    for item, known in zip(found.items, found.known, strict=True):
        right = Rollout.across_teams.get(pk=item[0 if known["verdict"] == "a" else 1])
        wrong = Rollout.across_teams.get(pk=item[1 if known["verdict"] == "a" else 0])
        assert (right.rewards["correct"], wrong.rewards["correct"]) == (1.0, 0.0)
        assert right.prompt_id == wrong.prompt_id
    assert len(set(found.prompts)) == 10  # no prompt twice while there are others


def test_of_single_answers_half_are_right(team: Team, stored: None) -> None:
    wanted = recipe(kind=Kind.SINGLE)
    found = select_gold_items(read_pool(team, wanted), wanted)
    assert sorted(known["verdict"] for known in found.known) == ["bad"] * 5 + ["good"] * 5


@pytest.mark.feature(67)
def test_gold_items_are_in_every_stretch_of_the_queue_and_in_it_once(team: Team, stored: None) -> None:
    pool = read_pool(team, recipe())
    items = mix_gold_items(make_items_from_pool(pool, recipe()), select_gold_items(pool, recipe()), seed=0)
    places = [at for at, item in enumerate(items) if item.gold]
    assert len(places) == 10
    assert [item.place for item in items] == [float(at) for at in range(len(items))]
    assert np.diff([-1, *places]).max() < 25
    assert len({tuple(sorted(item.rollouts)) for item in items}) == len(items)


def test_what_cannot_be_verified_is_said(team: Team, stored: None) -> None:
    made = queue_items.plan_items(team, recipe(gold=500))
    assert made.gold == 80  # each right answer beside each of the two wrong ones
    [lacking] = [one for one in made.left_out if one.what == "gold items"]
    assert lacking.count == 420


def test_a_queue_keeps_what_is_known_to_itself(team: Team, owner: User, stored: None) -> None:
    made = queue_items.plan_items(team, recipe(strategy=Strategy.LARGEST_GAP))
    queue = queue_items.create_queue_from_plan(team, owner, made, {"name": "with gold"}, ())
    assert queue.items.filter(gold__isnull=False).count() == made.gold == 10
    assert queue.items.count() == len(made)
    assert queue.items.filter(gold__verdict__in=["a", "b"], gold__by="correct").count() == 10
    again = queue_items.plan_more_items(queue, 20)
    assert not {tuple(sorted(item.rollouts)) for item in again.items} & queue_items.taken_by(queue)


def test_gold_items_are_among_the_most_that_were_asked_for(team: Team, stored: None) -> None:
    made = queue_items.plan_items(team, recipe(most=30))
    assert (len(made), made.gold, made.share) == (30, 10, pytest.approx(1 / 3))
