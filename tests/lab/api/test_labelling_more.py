"""Conflicts, review and quality over the API: the same rules as on the pages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from lab.labelling.labels.models import Item, ItemState, Judgement, JudgementState, Queue, QueueMember
from lab.teams.accounts.models import Role, Team, User
from lab.teams.audit.models import Entry
from tests.conftest import make_member
from tests.lab.api.conftest import ApiClient, client_of
from tests.lab.quality.labelling import judge, queue_of, scored_run


@pytest.fixture
def people(team: Team) -> list[User]:
    return [make_member(f"labeller{number}@example.org", team, Role.ANNOTATOR) for number in range(2)]


@pytest.fixture
def queue(team: Team, people: list[User]) -> Queue:
    """Blind; its first two items are conflicts, on the third both agree."""
    made = queue_of(scored_run(team, [[0.0, 1.0], [1.0, 0.0], [0.0, 1.0]]), overlap=2)
    for item, said in zip(made.items.order_by("place"), ("ab", "ab", "aa"), strict=True):
        for person, verdict in zip(people, said, strict=True):
            judge(item, person, verdict)
    return made


def fields_of(answer: Any) -> list[str]:
    assert answer.status_code == 422, answer.content
    return [one["field"] for one in answer.json()["errors"]]


def test_conflicts_come_page_by_page_without_names_and_origins_unless_revealed(api: ApiClient, queue: Queue, people: list[User]) -> None:
    first = api.ask(f"queues/{queue.pk}/conflicts", limit=1).json()
    second = api.ask(f"queues/{queue.pk}/conflicts", limit=1, after=first["next"]).json()
    items = [one["item"] for page in (first, second) for one in page["items"]]
    assert items == list(queue.items.filter(state=ItemState.CONFLICT).order_by("place").values_list("pk", flat=True))
    assert second["next"] is None
    [hidden] = first["items"]
    assert [answer["origin"] for answer in hidden["answers"]] == [None, None]
    assert [vote["by"] for vote in hidden["votes"]] == [None, None]
    assert {vote["choice"] for vote in hidden["votes"]} == {"1", "2"}
    shown = api.ask(f"items/{items[0]}", reveal=True).json()
    assert [answer["origin"]["rollout"] for answer in shown["answers"]] == [
        Item.across_teams.get(pk=items[0]).rollouts[place] for place in shown["order"]
    ]
    assert [vote["by"]["id"] for vote in shown["votes"]] == [one.pk for one in people]
    assert fields_of(api.ask(f"queues/{queue.pk}/conflicts", after="x")) == ["after"]


def test_a_conflict_is_decided_in_the_order_it_was_shown_and_the_decision_is_taken_back(api: ApiClient, queue: Queue, owner: User) -> None:
    [conflict, _] = api.ask(f"queues/{queue.pk}/conflicts").json()["items"]
    path = f"items/{conflict['item']}/decision"
    assert fields_of(api.send(path, {"answer": {"choice": "3"}})) == ["answer.choice"]
    assert fields_of(api.send(path, {"answer": {"choice": "1"}, "order": [0, 0]})) == ["order"]
    decided = api.send(path, {"answer": {"choice": "1"}, "comment": "Its sum is right.", "reveal": True}).json()
    assert (decided["state"], decided["decision"]["choice"], decided["decision"]["by"]["id"]) == ("settled", "1", owner.pk)
    item = Item.across_teams.get(pk=conflict["item"])
    assert item.final is not None
    assert item.final["verdict"] == "ab"[conflict["order"][0]]
    assert item.final_comment == "[decided with run, step, reward and labellers shown] Its sum is right."
    stored = api.send(path, {"answer": {"choice": "2"}, "order": [0, 1]}).json()
    assert Item.across_teams.get(pk=item.pk).final["verdict"] == "b"  # type: ignore[index]
    assert stored["decision"]["choice"] == str(conflict["order"].index(1) + 1)
    assert api.send(path, method="delete").json()["state"] == "conflict"
    assert api.send(path, method="delete").status_code == 409
    assert list(Entry.across_teams.filter(kind="item").order_by("pk").values_list("action", flat=True)) == [
        "label.decide",
        "label.decide",
        "label.undecide",
    ]


def test_nobody_decides_or_reviews_their_own_and_only_reviewers_do(team: Team, queue: Queue, people: list[User]) -> None:
    item = queue.items.order_by("place").first()
    assert item is not None
    api = client_of(team, people[0])
    mine = Judgement.objects.get(item=item, user=people[0])
    assert api.ask(f"queues/{queue.pk}/conflicts").status_code == 403
    assert api.send(f"items/{item.pk}/decision", {"answer": {"choice": "1"}}).status_code == 403
    assert api.send(f"labels/{mine.pk}/review", {"act": "accept"}).status_code == 403
    QueueMember.objects.create(queue=queue, user=people[0], reviews=True)
    assert [one["mine"] for one in api.ask(f"queues/{queue.pk}/conflicts").json()["items"]] == [True, True]
    for path, body in ((f"items/{item.pk}/decision", {"answer": {"choice": "1"}}), (f"labels/{mine.pk}/review", {"act": "accept"})):
        refused = api.send(path, body)
        assert refused.status_code == 409, refused.content
        assert "your" in refused.json()["detail"]
    assert fields_of(api.send(f"queues/{queue.pk}/review/accept", {"by": people[0].pk})) == ["by"]
    mine.refresh_from_db()
    assert mine.state == JudgementState.SUBMITTED


def test_labels_are_sent_back_with_a_reason_or_accepted_one_by_one_and_together(api: ApiClient, queue: Queue, people: list[User]) -> None:
    listed = api.ask(f"queues/{queue.pk}/review", by=people[0].pk).json()["items"]
    assert [one["by"]["id"] for one in listed] == [people[0].pk] * 3
    assert listed[0]["asked"]["answers"][0]["turns"][0]["content"] == "answer 0 of step 1"
    first, path = listed[0]["id"], f"labels/{listed[0]['id']}/review"
    assert fields_of(api.send(path, {"act": "return"})) == ["comment"]
    back = api.send(path, {"act": "return", "comment": "Look again."}).json()
    assert (back["state"], back["reviews"][0]["comment"]) == ("returned", "Look again.")
    assert [one["id"] for one in api.ask(f"queues/{queue.pk}/review", state="returned").json()["items"]] == [first]
    assert api.send(path, {"act": "accept"}).json()["state"] == "accepted"
    assert api.send(f"queues/{queue.pk}/review/accept", {"by": people[0].pk}).json() == {"accepted": 1, "left": 0}
    accepted = Judgement.objects.filter(queue=queue, user=people[0], state=JudgementState.ACCEPTED)
    assert set(accepted.values_list("item__state", flat=True)) == {ItemState.CONFLICT, ItemState.DONE}
    assert fields_of(api.send(f"queues/{queue.pk}/review/accept", {"by": 10**9})) == ["by"]


def test_who_reviews_and_still_labels_a_blind_queue_is_shown_neither_others_words_nor_ids(team: Team, queue: Queue, people: list[User]) -> None:
    person = make_member("both@example.org", team, Role.ANNOTATOR)
    QueueMember.objects.create(queue=queue, user=person, reviews=True)
    api = client_of(team, person)
    listed = api.ask(f"queues/{queue.pk}/review").json()["items"]
    assert len(listed) == 6
    assert {(len(one["rollouts"]), len(one["preferences"])) for one in listed} == {(0, 0)}
    item = queue.items.order_by("place").first()
    assert item is not None
    Judgement.objects.filter(item=item, user=people[1]).delete()
    Item.across_teams.filter(pk=item.pk).update(state=ItemState.OPEN, room=1)
    assert len(api.ask(f"queues/{queue.pk}/review").json()["items"]) == 4
    assert api.ask(f"items/{item.pk}").status_code == 403


def test_agreement_labellers_and_pausing(api: ApiClient, team: Team, queue: Queue, people: list[User], as_role: Callable[[str], ApiClient]) -> None:
    agreement = api.ask(f"queues/{queue.pk}/agreement").json()
    assert agreement["measures"][0]["value"] == pytest.approx(1 / 3)
    assert [(one["first"]["id"], one["second"]["id"], one["items"]) for one in agreement["pairs"]] == [(people[0].pk, people[1].pk, 3)]
    assert as_role("viewer").ask(f"queues/{queue.pk}/agreement").json()["pairs"] == []
    everybody = api.ask(f"queues/{queue.pk}/labellers").json()
    assert [(one["user"]["id"], one["labels"], one["others"]["n"]) for one in everybody] == [(one.pk, 3, 3) for one in people]
    own = client_of(team, people[1])
    assert [one["user"]["id"] for one in own.ask(f"queues/{queue.pk}/labellers").json()] == [people[1].pk]
    path = f"queues/{queue.pk}/labellers/{people[1].pk}/pause"
    assert own.send(path, method="put").status_code == 403
    assert api.send(path, {"reason": "Read the guidelines."}, method="put").status_code == 204
    assert own.ask(f"queues/{queue.pk}/labellers").json()[0]["paused_reason"] == "Read the guidelines."
    assert own.send(f"queues/{queue.pk}/next").json()["detail"].startswith("Read the guidelines.")
    assert api.send(path, method="delete").status_code == 204
    assert own.send(f"queues/{queue.pk}/next").status_code == 200
    assert api.send(f"queues/{queue.pk}/labellers/{10**9}/pause", {}, method="put").status_code == 404


def test_a_queue_is_paused_and_closed_and_its_people_are_chosen(api: ApiClient, team: Team, queue: Queue, people: list[User]) -> None:
    own = client_of(team, people[0])
    assert api.send(f"queues/{queue.pk}/status", {"status": "paused"}, method="put").json()["status"] == "paused"
    assert own.send(f"queues/{queue.pk}/next").json()["detail"].startswith("This queue is paused.")
    assert api.send(f"queues/{queue.pk}/status", {"status": "open"}, method="put").json()["status"] == "open"
    assert fields_of(api.send(f"queues/{queue.pk}/status", {"status": "gone"}, method="put")) == ["status"]
    assert own.send(f"queues/{queue.pk}/status", {"status": "closed"}, method="put").status_code == 403
    worker = api.send(f"queues/{queue.pk}/people/{people[0].pk}", {"labels": False, "reviews": True}, method="put").json()
    assert (worker["labels"], worker["reviews"], worker["labelled"]) == (False, True, 3)
    listed = {one["user"]["id"]: one["labels"] for one in api.ask(f"queues/{queue.pk}/people").json()}
    assert (listed[people[0].pk], listed[people[1].pk]) == (False, True)
    assert own.ask(f"queues/{queue.pk}/conflicts").status_code == 200
    assert fields_of(api.send(f"queues/{queue.pk}/people/{people[0].pk}", {}, method="put")) == ["the body"]
    assert api.send(f"queues/{queue.pk}/people/{10**9}", {"labels": True}, method="put").status_code == 404
    assert list(Entry.across_teams.filter(action="queue.people").order_by("pk").values_list("details__did", flat=True)) == ["remove", "reviewer"]
