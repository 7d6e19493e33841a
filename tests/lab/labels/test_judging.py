"""What is recorded when a person labels, takes back and revises."""

from __future__ import annotations

import uuid

import pytest

from lab.accounts.models import Role, Team, User
from lab.labels.claiming import claim
from lab.labels.judging import submit
from lab.labels.models import ItemState, Preference
from tests.conftest import make_member
from tests.lab.labels.queues import pair_queue


@pytest.fixture
def ann(team: Team) -> User:
    return make_member("ann@example.org", team, Role.ANNOTATOR)


def test_a_pair_is_recorded_in_stored_places_whatever_side_it_was_shown_on(team: Team, ann: User) -> None:
    queue = pair_queue(team, items=20)
    orders = set()
    for _ in range(20):
        [held] = claim(queue, ann, hold=1)
        orders.add(tuple(held.order))
        said = submit(queue, ann, held.token, uuid.uuid4(), {"choice": "1", "strength": 2}, 3.5)
        better = held.item.rollouts[held.order[0]]
        [preference] = Preference.objects.filter(judgement=said)
        assert (preference.chosen, said.verdict, said.strength, said.seconds) == (better, "ab"[held.order[0]], 2, 3.5)
    assert orders == {(0, 1), (1, 0)}
    assert set(queue.items.values_list("room", "labels", "state")) == {(0, 1, ItemState.DONE)}
