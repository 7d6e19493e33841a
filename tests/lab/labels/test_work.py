"""The labelling page as the server sends it: who gets it, what is in it, and what must not be."""

from __future__ import annotations

import json
import re
import uuid
from typing import Any

import pytest
from django.test import Client

from lab.labelling.labels.item_claims import claim_items
from lab.labelling.labels.judgements import submit_judgement
from lab.labelling.labels.models import Judgement, Kind, Queue, QueueMember, QueueStatus
from lab.labelling.labels.settlement import send_back
from lab.teams.accounts.models import Role, Team, User
from tests.conftest import make_member
from tests.hostile import MARK, PAYLOADS, stored
from tests.lab.labels.queues import group_queue, pair_queue


@pytest.fixture
def queue(team: Team) -> Queue:
    return pair_queue(team, 3)


def of(user: User) -> Client:
    client = Client()
    client.force_login(user)
    return client


def page(user: User, queue: Queue, query: str = "") -> str:
    response = of(user).get(f"/label/{queue.pk}/work/{query}")
    assert response.status_code == 200
    return response.content.decode()


def config(text: str) -> dict[str, Any]:
    found = re.search(r'<script id="labelling-config" type="application/json">(.*?)</script>', text, re.S)
    assert found
    return dict(json.loads(found[1]))


def judged(queue: Queue, user: User) -> Judgement:
    held = claim_items(queue, user, hold=1)[0]
    return submit_judgement(queue, user, held.token, uuid.uuid4(), {"choice": "1"}, 1.0)


def test_annotators_get_it_and_viewers_strangers_and_nobody_do_not(queue: Queue, team: Team, ann: User, stranger: User) -> None:
    assert "labelling-config" in page(ann, queue)
    viewer = make_member("viewer@example.org", team, Role.VIEWER)
    assert of(viewer).get(f"/label/{queue.pk}/work/").status_code == 403
    assert of(stranger).get(f"/label/{queue.pk}/work/").status_code == 404
    assert Client().get(f"/label/{queue.pk}/work/").status_code == 302
    assert of(ann).get(f"/label/{2**63}/work/").status_code == 404
    assert of(ann).post(f"/label/{queue.pk}/work/").status_code == 405


@pytest.mark.parametrize("kind", list(Kind))
def test_every_kind_gets_the_script_that_shows_it(team: Team, ann: User, kind: Kind) -> None:
    answers = {Kind.PAIR: 2, Kind.CLEARER: 4, Kind.RANKING: 3, Kind.SINGLE: 1}[kind]
    text = page(ann, group_queue(team, kind, 1, answers))
    assert f"labelling/{kind}.js" in text
    assert [name for name in ("pair", "clearer", "ranking", "single") if f"labelling/{name}.js" in text] == [kind]


def test_what_a_person_wrote_about_the_queue_can_do_nothing(team: Team, ann: User) -> None:
    payloads = [stored(text) for text in PAYLOADS]
    questions = [
        {"name": f"q{place}", "label": text, "kind": "choice", "choices": [text, "b"], "required": False} for place, text in enumerate(payloads)
    ]
    queue = pair_queue(team, 1, guidelines="\n\n".join(payloads), rubric=questions)
    Queue.across_teams.filter(pk=queue.pk).update(name=f"<img src=x onerror={MARK}>")
    text = page(ann, queue)
    assert config(text)["queue"]["rubric"] == questions
    outside = re.sub(r'<script id="labelling-config".*?</script>', "", text, flags=re.S)
    for tag in re.findall(r"<[a-zA-Z][^>]*>", outside):
        assert MARK not in tag or tag.startswith(('<a href="http', "<a rel")), tag


def test_the_page_says_nothing_of_gold_or_of_where_answers_come_from(team: Team, ann: User) -> None:
    queue = pair_queue(team, 2)
    queue.items.update(gold={"verdict": "a", "secret": "known to us"})
    assert "known to us" not in page(ann, queue)
    answer = of(ann).post(f"/label/{queue.pk}/next/", "{}", content_type="application/json")
    assert answer.status_code == 200
    assert "known to us" not in answer.content.decode()
    assert all("about" not in one for view in answer.json()["claims"] for one in view["answers"])


def test_what_was_sent_back_is_listed_with_the_reviewer_and_the_words(queue: Queue, owner: User, ann: User) -> None:
    first, second = judged(queue, ann), judged(queue, ann)
    send_back(first, owner, "Look <b>again</b>")
    text = page(ann, queue)
    assert "1 sent back" in text
    assert "Look &lt;b&gt;again&lt;/b&gt;" in text
    assert f"?item={first.item_id}" in text
    assert f"?item={second.item_id}" not in text
    assert list(config(text)["returned"]) == [str(first.item_id)]
    assert "sent back" not in page(owner, queue)


@pytest.mark.parametrize(
    ("query", "revised"), [("?item=12", 12), ("?item=x", None), (f"?item={10**30}", None), ("?item=-1", None), ("?else=1", None), ("?item=²", None)]
)
def test_an_address_names_the_item_to_revise_or_is_ignored(queue: Queue, ann: User, query: str, revised: int | None) -> None:
    assert config(page(ann, queue, query))["revise"] == revised


def test_only_queues_the_person_may_label_in_are_offered_next(queue: Queue, team: Team, ann: User, stranger: User) -> None:
    free, closed, assigned, theirs, paused = (pair_queue(team, 1) for _ in range(5))
    for number, one in enumerate((free, closed, assigned, theirs, paused)):
        Queue.across_teams.filter(pk=one.pk).update(name=f"queue number {number}", assigned_only=one in (assigned, theirs))
    Queue.across_teams.filter(pk=closed.pk).update(status=QueueStatus.CLOSED)
    QueueMember.objects.create(queue=theirs, user=ann)
    QueueMember.objects.create(queue=paused, user=ann, paused_at="2026-01-01T00:00Z")
    QueueMember.objects.create(queue=assigned, user=stranger)
    text = page(ann, queue)
    assert [number for number in range(5) if f"queue number {number}" in text] == [0, 3]
    judged(free, ann)  # its only item
    assert "queue number 0" not in page(ann, queue)
    assert of(ann).get("/label/").content.decode().count("to-label-start") == 2  # this one and theirs


def test_a_queue_that_never_skips_offers_no_skip(team: Team, ann: User) -> None:
    assert 'data-do="skip"' in page(ann, pair_queue(team, 1))
    assert 'data-do="skip"' not in page(ann, pair_queue(team, 1, skipping="never"))
