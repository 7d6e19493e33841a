"""Queues, labels, datasets and the audit log over the API."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable

import pytest

from lab.data.datasets.models import Version
from lab.labelling.labels.models import Judgement, Kind, Queue
from lab.labelling.labels.new_queues import NewItem, make_queue
from lab.teams.accounts.models import Role, Team, User
from tests.conftest import make_member
from tests.lab.api.conftest import ApiClient, client_of
from tests.lab.cast import Cast, make_cast


@pytest.fixture
def cast(team: Team, owner: User) -> Cast:
    return make_cast(team, owner, "mark")


@pytest.fixture
def queue(cast: Cast, team: Team, owner: User) -> Queue:
    items = [NewItem(cast.prompt.pk, (cast.rollout.pk, cast.other_rollout.pk))]
    return make_queue(team, owner, name="work", kind=Kind.PAIR, items=items)


def test_an_item_is_claimed_answered_once_and_taken_back(team: Team, queue: Queue) -> None:
    person = make_member("labels@example.org", team, Role.ANNOTATOR)
    api = client_of(team, person)
    [claim] = api.send(f"queues/{queue.pk}/next", {"hold": 1}).json()["claims"]
    assert claim["prompt"] == [{"role": "user", "content": "prompt mark"}]
    assert "about" not in claim["answers"][0], "a blind queue does not tell where an answer came from"
    body = {"token": claim["token"], "answer": {"choice": "1", "strength": 2}, "seconds": 3.5}
    first, again = api.send(f"queues/{queue.pk}/submit", body), api.send(f"queues/{queue.pk}/submit", body)
    assert first.json()["judgement"] == again.json()["judgement"]
    assert Judgement.objects.filter(queue=queue).count() == 1
    nothing = api.send(f"queues/{queue.pk}/next").json()
    assert (nothing["claims"], nothing["reason"]) == ([], "Every item of this queue has its labels.")
    undone = api.send(f"queues/{queue.pk}/undo").json()
    assert undone["claim"]["item"] == claim["item"]
    skipped = api.send(f"queues/{queue.pk}/submit", {"token": undone["claim"]["token"], "answer": {"choice": "skip", "reason": "unsure"}})
    assert skipped.status_code == 200, skipped.content


def test_what_cannot_be_answered_names_its_field(api: ApiClient, queue: Queue) -> None:
    [claim] = api.send(f"queues/{queue.pk}/next").json()["claims"]
    wrong = api.send(f"queues/{queue.pk}/submit", {"token": claim["token"], "answer": {"choice": "3"}})
    assert (wrong.status_code, wrong.json()["errors"][0]["field"]) == (422, "answer.choice")
    late = api.send(f"queues/{queue.pk}/submit", {"token": str(uuid.uuid4()), "answer": {"choice": "1"}})
    assert (late.status_code, late.json()["type"]) == (409, "/api/#conflict")
    assert api.send(f"queues/{queue.pk}/undo").status_code == 409


def test_annotators_see_the_queues_open_to_them_and_nothing_else(team: Team, cast: Cast, as_role: Callable[[str], ApiClient]) -> None:
    Queue.across_teams.update(selection="run=1&gold_by=correct")
    api = as_role("annotator")
    assert [row["name"] for row in api.ask("queues").json()["items"]] == ["queue mark"]
    assert api.ask(f"queues/{cast.queue.pk}").json()["selection"] == ""
    Queue.across_teams.update(assigned_only=True)
    assert api.ask("queues").json()["items"] == []
    assert api.ask(f"queues/{cast.queue.pk}").status_code == 404
    assert api.send(f"queues/{cast.queue.pk}/next").status_code == 403
    for path in ("runs", "rollouts", f"queues/{cast.queue.pk}/labels", "datasets", "members", "audit"):
        assert api.ask(path).status_code == 403, path


def test_a_queue_is_made_by_the_rules_of_the_form(api: ApiClient, cast: Cast) -> None:
    made = api.send("queues", {"name": "pairs", "selection": f"run={cast.run.number}", "kind": "single", "overlap": 2, "per": 0, "blind": False})
    assert made.status_code == 201, made.content
    queue = Queue.across_teams.get(pk=made.json()["id"])
    assert (queue.overlap, queue.blind, queue.kind) == (2, False, "single")
    assert queue.items.exists()
    wrong = api.send("queues", {"name": " ", "how": "runs", "a_run": 999, "b_run": 1, "overlap": 0})
    assert {one["field"] for one in wrong.json()["errors"]} >= {"name", "a_run", "overlap"}
    none = api.send("queues", {"name": "none", "selection": "f=reward:ge:5"})
    assert [one["field"] for one in none.json()["errors"]] == ["selection"]


def test_labels_and_agreement(api: ApiClient, cast: Cast) -> None:
    [label] = api.ask(f"queues/{cast.queue.pk}/labels").json()["items"]
    assert (label["verdict"], label["preferences"], label["rationale"]) == ("a", [[cast.rollout.pk, cast.other_rollout.pk]], "rationale mark")
    found = api.ask(f"queues/{cast.queue.pk}/agreement").json()
    assert "alpha" in found["measures"][-1]["name"]
    assert api.ask(f"queues/{cast.queue.pk}").json()["progress"]["done"] == 1


def test_a_dataset_is_made_frozen_and_read(api: ApiClient, cast: Cast) -> None:
    made = api.send("datasets", {"name": "mine", "queues": [cast.queue.pk]})
    assert made.status_code == 201, made.content
    version = api.send(f"datasets/{made.json()['id']}/freeze", {"rule": {"test_share": 0}, "notes": "first"})
    assert (version.status_code, version.json()["number"], version.json()["state"]) == (201, 1, "queued")
    assert Version.across_teams.get(pk=version.json()["id"]).rule["test_share"] == 0
    wrong = api.send(f"datasets/{made.json()['id']}/freeze", {"rule": {"test_share": 7}})
    assert [one["field"] for one in wrong.json()["errors"]] == ["rule.test_share"]
    assert api.send("datasets", {"name": "x", "queues": [10**6]}).json()["errors"][0]["field"] == "queues"
    response = api.ask(f"versions/{cast.version.pk}/rows")
    [row] = [json.loads(line) for line in b"".join(response.streaming_content).splitlines()]
    assert row["chosen"] == [{"role": "assistant", "content": "completion mark"}]
    assert api.ask(f"versions/{version.json()['id']}/rows").status_code == 404
    assert api.ask(f"datasets/{cast.dataset.pk}").json()["versions"][0]["id"] == cast.version.pk
    assert sum(api.ask(f"versions/{cast.version.pk}/diff", against=cast.version.pk).json()["changes"].values()) in (0, 1)
    assert api.ask("recalls").json()["items"][0]["reason"] == "recall mark"
    assert api.ask(f"runs/{cast.run.pk}/wins").json() == []


def test_the_audit_log_is_for_admins(api: ApiClient, cast: Cast, as_role: Callable[[str], ApiClient]) -> None:
    entries = api.ask("audit", action="run.").json()["items"]
    assert entries[0]["action"] == "run.launch"
    assert api.ask("audit", action="nothing").status_code == 422
    assert as_role("researcher").ask("audit").status_code == 403
