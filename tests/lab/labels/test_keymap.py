"""A person's own keys: kept with the person, and never two meanings for one key."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from lab.labelling.labels.keymap import ACTIONS
from lab.labelling.labels.models import KeyMap, Kind
from lab.teams.accounts.models import Team, User
from tests.lab.labels.queues import group_queue, pair_queue
from tests.lab.labels.test_work import config, of, page

ROOT = Path(__file__).resolve().parents[3]
DRAWN = ("strength-", "rank-")  # made by a loop in the scripts


def save(client: Client, queue: int, keys: Any) -> Any:
    return client.post(f"/label/{queue}/keys/", {"keys": keys}, content_type="application/json")


def test_the_actions_are_those_of_the_scripts() -> None:
    scripts = "".join(path.read_text() for path in (ROOT / "static/labelling").glob("*.js"))
    there = {(action, key) for action, key in re.findall(r'id: "([a-z0-9-]+)", key: "(.)"', scripts)}
    known = {pair for actions in ACTIONS.values() for pair in actions.items()}
    assert there <= known
    assert {pair for pair in known - there if not pair[0].startswith(DRAWN)} == set()


@pytest.mark.parametrize("kind", Kind.values)
def test_no_usual_key_has_two_meanings(kind: str) -> None:
    assert len(set(ACTIONS[kind].values())) == len(ACTIONS[kind])


def test_keys_go_with_the_person_and_their_kind_of_queue(team: Team, ann: User, owner: User) -> None:
    queue, ranking = pair_queue(team, 1), group_queue(team, Kind.RANKING, 1, 3)
    assert save(of(ann), queue.pk, {"first": "a", "second": "2"}).json() == {"keys": {"first": "a"}}  # the usual ones are not kept
    assert config(page(ann, queue))["key_map"] == {"first": "a"}  # in any browser
    assert config(page(ann, ranking))["key_map"] == {}
    assert config(page(owner, queue))["key_map"] == {}
    assert save(of(ann), queue.pk, {}).json() == {"keys": {}}
    assert KeyMap.objects.get().keys == {}


@pytest.mark.parametrize(
    ("keys", "field", "words"),
    [
        ({"first": "2"}, "first", "already means “second”"),
        ({"first": "o"}, "first", "already means “rubric”"),  # this queue asks no questions, others of its kind do
        ({"first": "a", "tie": "a"}, "tie", "already means “first”"),
        ({"bad": "="}, "bad", "always means “tie”"),
        ({"skip": "4"}, "skip", "answers the extra questions"),
        ({"rubric": "-"}, "rubric", "answers the extra questions"),
        ({"first": "?"}, "first", "opens the list of keys"),
        ({"first": "ab"}, "first", "single character"),
        ({"first": ""}, "first", "single character"),
        ({"first": "\n"}, "first", "single character"),
        ({"first": 1}, "first", "single character"),
        ({"constructor": "a"}, "constructor", "no such action"),
        ([], "keys", "object"),
    ],
)
def test_what_cannot_be_a_key_is_told_at_its_action(team: Team, ann: User, keys: Any, field: str, words: str) -> None:
    response = save(of(ann), pair_queue(team, 1).pk, keys)
    assert response.status_code == 422
    [problem] = response.json()["problems"]
    assert problem["field"] == field
    assert words in problem["message"]
    assert not KeyMap.objects.exists()


def test_the_verdict_may_have_keys_of_the_number_row(team: Team, ann: User) -> None:
    assert save(of(ann), pair_queue(team, 1).pk, {"bad": "9", "strength-1": "7"}).status_code == 200


def test_two_keys_may_be_exchanged(team: Team, ann: User) -> None:
    assert save(of(ann), pair_queue(team, 1).pk, {"first": "2", "second": "1"}).status_code == 200
