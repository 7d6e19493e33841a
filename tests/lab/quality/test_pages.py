"""Quality, conflicts, review and the page of an item: who sees what, what is posted, and that nobody decides about their own."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.test import Client

from lab.labelling.labels.models import Change, Item, ItemState, Judgement, JudgementState, Kind, Preference, Queue, QueueMember
from lab.labelling.quality.models import Review
from lab.rollouts.trajectories.models import Rollout
from lab.teams.accounts.models import Role, Team, User
from tests.conftest import make_member
from tests.hostile import MARK, PAYLOADS
from tests.lab.quality.labelling import judge, queue_of, scored_run

TEXTS = [payload for payload in PAYLOADS if "\ud800" not in payload and "\x00" not in payload]


@pytest.fixture
def first(team: Team) -> User:
    return make_member("first@example.org", team, Role.ANNOTATOR)


@pytest.fixture
def second(team: Team) -> User:
    return make_member("second@example.org", team, Role.ANNOTATOR)


@pytest.fixture
def queue(team: Team) -> Queue:
    return queue_of(scored_run(team, [[1.0, 0.0]] * 6), overlap=2)


@pytest.fixture
def conflict(queue: Queue, first: User, second: User) -> Item:
    item = queue.items.order_by("place")[0]
    judge(item, first, "a", rationale="first says the left one")
    judge(item, second, "b", order=[1, 0], rationale="second says otherwise")
    item.refresh_from_db()
    assert item.state == ItemState.CONFLICT
    return item


def signed_in(user: User) -> Client:
    client = Client()
    client.force_login(user)
    return client


def page(client: Client, url: str, status: int = 200) -> str:
    response = client.get(url)
    assert response.status_code == status, url
    return response.content.decode()


def decided(client: Client, item: Item, answer: dict[str, Any], **more: Any) -> Any:
    body = {"answer": answer, "order": list(range(len(item.rollouts))), **more}
    return client.post(f"/label/items/{item.pk}/adjudicate/", json.dumps(body), content_type="application/json")


def reviewed(client: Client, judgement: Judgement, act: str, comment: str = "", query: str = "") -> Any:
    return client.post(f"/label/judgements/{judgement.pk}/review/{query}", {"act": act, "comment": comment})


# Quality


def test_leads_see_coefficients_and_everybody_annotators_only_their_own_line(queue: Queue, conflict: Item, first: User, as_owner: Client) -> None:
    body = page(as_owner, f"/label/{queue.pk}/quality/")
    assert "Krippendorff&#x27;s alpha, ordinal" in body or "Krippendorff's alpha, ordinal" in body
    assert "first@example.org" in body
    assert "second@example.org" in body
    own = page(signed_in(first), f"/label/{queue.pk}/quality/")
    assert "first@example.org" in own
    assert "second@example.org" not in own
    assert "Krippendorff" not in own


def test_a_viewer_sees_coefficients_and_no_names(team: Team, queue: Queue, conflict: Item) -> None:
    body = page(signed_in(make_member("viewer@example.org", team, Role.VIEWER)), f"/label/{queue.pk}/quality/")
    assert "Krippendorff" in body
    assert "first@example.org" not in body


def test_every_kind_of_queue_and_one_without_labels_has_a_quality_page(team: Team, as_owner: Client) -> None:
    run = scored_run(team, [[1.0, 0.0, 0.5, 0.2]])
    for kind in (Kind.RANKING, Kind.CLEARER):
        assert "not defined: no item has labels from two people yet" in page(as_owner, f"/label/{queue_of(run, kind=kind).pk}/quality/")
    single = queue_of(scored_run(team, [[1.0]]), kind=Kind.SINGLE, steps=True)
    assert "No labels yet" in page(as_owner, f"/label/{single.pk}/quality/")


def test_a_lead_pauses_a_labeller_and_lets_them_go_on(queue: Queue, conflict: Item, first: User, as_owner: Client) -> None:
    url = f"/label/{queue.pk}/quality/labeller/"
    assert as_owner.post(url, {"user": first.pk, "act": "pause", "reason": "too fast"}).status_code == 302
    assert QueueMember.objects.get(queue=queue, user=first).paused_reason == "too fast"
    assert "too fast" in page(as_owner, f"/label/{queue.pk}/quality/")
    as_owner.post(url, {"user": first.pk, "act": "resume"})
    assert QueueMember.objects.get(queue=queue, user=first).paused_at is None
    assert signed_in(first).post(url, {"user": first.pk, "act": "resume"}).status_code == 403


@pytest.mark.parametrize("user", ["x", "0", "9" * 30, "²"])
def test_nobody_else_can_be_paused(user: str, queue: Queue, stranger: User, as_owner: Client) -> None:
    url = f"/label/{queue.pk}/quality/labeller/"
    assert as_owner.post(url, {"user": user, "act": "pause"}).status_code == 404
    assert as_owner.post(url, {"user": stranger.pk, "act": "pause"}).status_code == 404
    assert as_owner.post(url, {"act": "pause"}).status_code == 302
    assert not queue.members.exists()


# Conflicts


def test_a_conflict_is_shown_blind_until_it_is_revealed(queue: Queue, conflict: Item, as_owner: Client) -> None:
    url = f"/label/{queue.pk}/conflicts/"
    blind = page(as_owner, url)
    assert "first says the left one" in blind
    assert "first@example.org" not in blind
    assert "reward 1" not in blind
    shown = page(as_owner, f"{url}?reveal=1")
    assert "first@example.org" in shown
    assert "reward 1" in shown


def test_a_decision_settles_the_item_and_is_history(queue: Queue, conflict: Item, owner: User, as_owner: Client) -> None:
    response = decided(as_owner, conflict, {"choice": "2"}, comment="the sum is wrong", reveal=True)
    assert response.status_code == 200
    assert response.json()["state"] == "settled"
    conflict.refresh_from_db()
    assert (conflict.final["verdict"], conflict.final_by) == ("b", owner)
    change = Change.objects.get(item=conflict, what="settled")
    assert change.comment.endswith("the sum is wrong")
    assert "shown" in change.comment
    assert Preference.objects.filter(item=conflict).count() == 2  # of the judgements: a decision rewrites nobody


def test_the_order_says_which_answer_is_meant(conflict: Item, as_owner: Client) -> None:
    decided(as_owner, conflict, {"choice": "2"}, order=[1, 0])
    conflict.refresh_from_db()
    assert conflict.final["verdict"] == "a"


def test_a_form_leads_to_the_next_conflict_and_a_decision_can_be_taken_back(
    queue: Queue, conflict: Item, first: User, second: User, as_owner: Client
) -> None:
    other = queue.items.order_by("place")[1]
    judge(other, first, "a")
    judge(other, second, "tie")
    url = f"/label/items/{conflict.pk}/adjudicate/"
    response = as_owner.post(url, {"choice": "1", "order": "[0, 1]", "comment": ""})
    assert response.headers["Location"] == f"/label/{queue.pk}/conflicts/?item={other.pk}"
    assert as_owner.post(url, {"act": "undo"}).headers["Location"] == f"/label/{queue.pk}/conflicts/?item={conflict.pk}"
    conflict.refresh_from_db()
    assert (conflict.state, conflict.final, conflict.final_by) == (ItemState.CONFLICT, None, None)
    assert [change.what for change in Change.objects.filter(item=conflict)] == ["settled", "undone"]
    assert as_owner.post(url, {"act": "undo"}).status_code == 403


def test_nobody_decides_an_item_they_labelled(queue: Queue, first: User, owner: User, as_owner: Client) -> None:
    item = queue.items.order_by("place")[0]
    judge(item, first, "a")
    judge(item, owner, "b")
    assert "You labelled this item yourself" in page(as_owner, f"/label/{queue.pk}/conflicts/")
    response = decided(as_owner, item, {"choice": "1"})
    assert (response.status_code, response.json()["message"]) == (403, "You labelled this item yourself.")
    item.refresh_from_db()
    assert item.state == ItemState.CONFLICT


def test_only_reviewers_decide(queue: Queue, conflict: Item, first: User, team: Team) -> None:
    third = make_member("third@example.org", team, Role.ANNOTATOR)
    assert signed_in(third).get(f"/label/{queue.pk}/conflicts/").status_code == 403
    assert decided(signed_in(third), conflict, {"choice": "1"}).status_code == 403
    assert signed_in(third).post(f"/label/items/{conflict.pk}/adjudicate/", {"choice": "1", "order": "[0, 1]"}).status_code == 403
    QueueMember.objects.create(queue=queue, user=third, reviews=True)
    assert decided(signed_in(third), conflict, {"choice": "1"}).status_code == 200


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ("[1]", "body"),
        ("{", "body"),
        ('{"answer": 1, "order": [0, 1]}', "answer"),
        ('{"answer": {"choice": "3"}, "order": [0, 1]}', "choice"),
        ('{"answer": {"choice": "skip"}, "order": [0, 1]}', "choice"),
        ('{"answer": {"choice": "1"}, "order": [0, 0]}', "order"),
        ('{"answer": {"choice": "1"}, "order": "x"}', "order"),
        ('{"answer": {"choice": "1"}, "order": [0, 1], "comment": 7}', "comment"),
    ],
)
def test_a_decision_that_cannot_be_read_names_the_field(body: str, field: str, conflict: Item, as_owner: Client) -> None:
    response = as_owner.post(f"/label/items/{conflict.pk}/adjudicate/", body, content_type="application/json")
    assert response.status_code == 422
    assert field in [problem["field"] for problem in response.json()["problems"]]


def test_a_form_without_a_choice_keeps_the_comment(conflict: Item, as_owner: Client) -> None:
    response = as_owner.post(f"/label/items/{conflict.pk}/adjudicate/", {"order": "[0, 1]", "comment": "keep me"})
    assert response.status_code == 422
    body = response.content.decode()
    assert "keep me" in body
    assert "Choose an answer first." in body


def test_a_ranking_is_decided_by_its_tiers(team: Team, first: User, second: User, as_owner: Client) -> None:
    item = queue_of(scored_run(team, [[1.0, 0.5, 0.0]]), kind=Kind.RANKING, overlap=2).items.get()
    judge(item, first, "ranked", tiers=[[0], [1], [2]])
    judge(item, second, "ranked", tiers=[[2], [1], [0]])
    assert "A &gt;" in page(as_owner, f"/label/{item.queue_id}/conflicts/")
    response = as_owner.post(f"/label/items/{item.pk}/adjudicate/", {"tiers": "[[2], [0, 1]]", "order": "[2, 0, 1]"})
    assert response.status_code == 302
    item.refresh_from_db()
    assert item.final["tiers"] == [[1], [0, 2]]
    assert as_owner.post(f"/label/items/{item.pk}/adjudicate/", {"tiers": "[[", "order": "[2, 0, 1]"}).status_code == 422


# Review


def test_accepting_and_sending_back(queue: Queue, conflict: Item, first: User, second: User, owner: User, as_owner: Client) -> None:
    one, other = Judgement.objects.filter(item=conflict).order_by("pk")
    response = reviewed(as_owner, one, "accept")
    assert response.headers["Location"] == f"/label/{queue.pk}/review/?judgement={other.pk}"
    assert reviewed(as_owner, other, "return", "look at the sum").status_code == 302
    one.refresh_from_db()
    other.refresh_from_db()
    assert (one.state, other.state) == (JudgementState.ACCEPTED, JudgementState.RETURNED)
    assert list(Review.across_teams.values_list("judgement", "reviewer", "accepted", "comment")) == [
        (one.pk, owner.pk, True, ""),
        (other.pk, owner.pk, False, "look at the sum"),
    ]
    assert "look at the sum" in page(as_owner, f"/label/{queue.pk}/review/?state=returned")


def test_sending_back_needs_a_comment(conflict: Item, as_owner: Client) -> None:
    judgement = Judgement.objects.filter(item=conflict)[0]
    response = reviewed(as_owner, judgement, "return", "  ")
    assert response.status_code == 422
    assert "A reason is required to send back" in response.content.decode()
    assert reviewed(as_owner, judgement, "burn").status_code == 422
    judgement.refresh_from_db()
    assert judgement.state == JudgementState.SUBMITTED
    assert not Review.across_teams.exists()


def test_nobody_reviews_their_own(queue: Queue, owner: User, as_owner: Client) -> None:
    judgement = judge(queue.items.order_by("place")[0], owner, "a")
    body = page(as_owner, f"/label/{queue.pk}/review/")
    assert "someone else must review" in body
    assert f"judgement={judgement.pk}" not in body
    assert "This is your own label" in page(as_owner, f"/label/{queue.pk}/review/?judgement={judgement.pk}")
    response = reviewed(as_owner, judgement, "accept")
    assert response.status_code == 403
    assert "This is your own label." in response.content.decode()
    as_owner.post(f"/label/{queue.pk}/review/accept/", {"by": owner.pk})
    judgement.refresh_from_db()
    assert judgement.state == JudgementState.SUBMITTED
    assert not Review.across_teams.exists()


def test_only_reviewers_review(queue: Queue, conflict: Item, first: User, second: User) -> None:
    judgement = Judgement.objects.get(item=conflict, user=first)
    client = signed_in(second)
    assert client.get(f"/label/{queue.pk}/review/").status_code == 403
    assert reviewed(client, judgement, "accept").status_code == 403
    body = json.dumps({"act": "accept"})
    response = client.post(f"/label/judgements/{judgement.pk}/review/", body, content_type="application/json")
    assert (response.status_code, response.json()["message"]) == (403, "You are not a reviewer of this queue.")
    assert client.post(f"/label/{queue.pk}/review/accept/", {"by": first.pk}).status_code == 403
    QueueMember.objects.create(queue=queue, user=second, reviews=True)
    assert client.post(f"/label/judgements/{judgement.pk}/review/", body, content_type="application/json").json() == {"state": "accepted"}


def test_bulk_accept_takes_one_labellers_labels_that_nobody_contradicts(
    queue: Queue, conflict: Item, first: User, second: User, as_owner: Client
) -> None:
    agreed, waiting = queue.items.order_by("place")[1:3]
    judge(agreed, first, "a")
    judge(agreed, second, "a")
    judge(waiting, first, "a")
    assert "Accept 1 without disagreement" in page(as_owner, f"/label/{queue.pk}/review/?by={first.pk}")
    assert as_owner.post(f"/label/{queue.pk}/review/accept/", {"by": first.pk}).status_code == 302
    accepted = Judgement.across_teams.filter(state=JudgementState.ACCEPTED)
    assert list(accepted.values_list("item", "user")) == [(agreed.pk, first.pk)]
    assert Review.across_teams.count() == 1


def send_back(client: Client, queue: Queue, query: str = "", **data: Any) -> Any:
    return client.post(f"/label/{queue.pk}/review/return/{query}", {"comment": "read the guidelines", **data})


def test_ticked_labels_are_sent_back_at_once_with_one_comment(queue: Queue, conflict: Item, first: User, second: User, as_owner: Client) -> None:
    one, other = Judgement.objects.filter(item=conflict).order_by("pk")
    kept = judge(queue.items.order_by("place")[1], first, "a")
    gone = judge(queue.items.order_by("place")[2], second, "a")
    Judgement.objects.filter(queue=queue, pk=gone.pk).update(state=JudgementState.WITHDRAWN)
    assert "Send back several" in page(as_owner, f"/label/{queue.pk}/review/")
    response = send_back(as_owner, queue, judgement=[one.pk, other.pk, gone.pk, 2**40])
    assert response.headers["Location"] == f"/label/{queue.pk}/review/?"
    told = page(as_owner, f"/label/{queue.pk}/review/")
    assert "2 labels sent back to their authors. Not changed: 2 (no longer in this list)." in told
    assert set(Judgement.objects.filter(queue=queue, state=JudgementState.RETURNED)) == {one, other}
    assert Judgement.objects.get(queue=queue, pk=kept.pk).state == JudgementState.SUBMITTED
    assert Change.objects.filter(item=conflict, what="returned", comment="read the guidelines").count() == 2
    assert Review.across_teams.filter(accepted=False).count() == 2
    assert "Send back several" not in page(as_owner, f"/label/{queue.pk}/review/?state=returned")
    assert send_back(as_owner, queue, "?state=returned", judgement=[one.pk]).status_code == 302
    assert Review.across_teams.count() == 2


def test_all_of_a_filter_are_sent_back_but_none_that_came_later_or_is_ones_own(
    queue: Queue, conflict: Item, first: User, owner: User, as_owner: Client
) -> None:
    items = queue.items.order_by("place")
    own = judge(items[1], owner, "a")
    seen = judge(items[2], first, "a")
    later = judge(items[3], first, "a")
    send_back(as_owner, queue, f"?by={first.pk}", all="yes", newest=seen.pk)
    returned = Judgement.objects.filter(queue=queue, state=JudgementState.RETURNED)
    assert set(returned.values_list("user", flat=True)) == {first.pk}
    assert returned.count() == 2
    send_back(as_owner, queue, judgement=[own.pk])
    assert set(Judgement.objects.filter(queue=queue, pk__in=[own.pk, later.pk]).values_list("state", flat=True)) == {JudgementState.SUBMITTED}


def test_nothing_is_sent_back_without_a_comment_a_tick_or_the_right(
    queue: Queue, conflict: Item, first: User, as_owner: Client, as_stranger: Client
) -> None:
    ticked = Judgement.objects.filter(item=conflict)[0].pk
    response = send_back(as_owner, queue, judgement=[ticked], comment=" ")
    assert response.status_code == 422
    assert "A reason is required" in response.content.decode()
    assert "checked" in response.content.decode().split(f'value="{ticked}"')[1].split(">")[0]
    assert "No label is ticked" in send_back(as_owner, queue).content.decode()
    assert send_back(signed_in(first), queue, judgement=[ticked]).status_code == 403
    assert send_back(as_stranger, queue, judgement=[ticked]).status_code == 404
    assert not Judgement.objects.filter(queue=queue, state=JudgementState.RETURNED).exists()


def test_a_reviewer_who_labels_reads_no_label_of_an_item_they_may_still_be_asked_about(queue: Queue, first: User, second: User) -> None:
    half, whole = queue.items.order_by("place")[:2]
    open_one = judge(half, first, "a", rationale="not for second yet")
    judge(whole, first, "a")
    judge(whole, second, "a")
    QueueMember.objects.create(queue=queue, user=second, reviews=True)
    client = signed_in(second)
    for url in (f"/label/{queue.pk}/review/", f"/label/{queue.pk}/review/?judgement={open_one.pk}", f"/label/items/{half.pk}/"):
        assert "not for second yet" not in page(client, url)
    assert f"/label/items/{whole.pk}/" in page(client, f"/label/{queue.pk}/review/")
    QueueMember.objects.filter(queue=queue, user=second).update(labels=False)
    assert "not for second yet" in page(client, f"/label/{queue.pk}/review/?judgement={open_one.pk}")


# The item


def test_an_item_shows_votes_decision_and_every_change(conflict: Item, as_owner: Client) -> None:
    decided(as_owner, conflict, {"choice": "1"}, comment="checked by hand")
    reviewed(as_owner, Judgement.objects.filter(item=conflict)[0], "accept", "fine")
    body = page(as_owner, f"/label/items/{conflict.pk}/")
    for words in (
        "first@example.org",
        "second@example.org",
        "first says the left one",
        "Decided: 1 is",
        "checked by hand",
        "settled",
        "accepted",
        "fine",
    ):
        assert words in body
    for rollout in conflict.rollouts:
        assert f"/rollouts/{rollout}/" in body


def test_labels_stay_blind_until_the_item_is_done(queue: Queue, conflict: Item, first: User, second: User, as_owner: Client) -> None:
    own = page(signed_in(first), f"/label/items/{conflict.pk}/")
    assert "first says the left one" in own
    assert "second says otherwise" not in own
    assert "second@example.org" not in own
    decided(as_owner, conflict, {"choice": "1"})
    later = page(signed_in(first), f"/label/items/{conflict.pk}/")
    assert "second says otherwise" in later
    assert "second@example.org" not in later
    half = queue.items.order_by("place")[1]
    judge(half, second, "a", rationale="nobody may read this yet")
    assert "nobody may read this yet" not in page(signed_in(first), f"/label/items/{half.pk}/")


def test_a_known_answer_is_told_only_to_who_has_answered(team: Team, first: User, second: User, as_owner: Client) -> None:
    item = queue_of(scored_run(team, [[1.0, 0.0]]), gold={"verdict": "a"}, overlap=2).items.get()
    judge(item, first, "b")
    assert "known answer" in page(as_owner, f"/label/items/{item.pk}/")
    assert "known answer" in page(signed_in(first), f"/label/items/{item.pk}/")
    hidden = page(signed_in(second), f"/label/items/{item.pk}/")
    assert "gold" not in hidden
    assert "known answer" not in hidden


def test_a_queue_one_has_no_part_in_is_not_found(team: Team, conflict: Item, queue: Queue, first: User, second: User) -> None:
    Queue.across_teams.filter(pk=queue.pk).update(assigned_only=True)
    QueueMember.objects.create(queue=queue, user=first)
    assert signed_in(first).get(f"/label/items/{conflict.pk}/").status_code == 200
    for url in (f"/label/items/{conflict.pk}/", f"/label/{queue.pk}/quality/"):
        assert signed_in(second).get(url).status_code == 404


def test_hostile_texts_stay_texts(team: Team, first: User, second: User, as_owner: Client) -> None:
    run = scored_run(team, [[1.0, 0.0]])
    for place, one in enumerate(Rollout.objects.filter(run=run)):
        one.completion = f"{place} " + " ".join(TEXTS)
        one.save(update_fields=["completion"])
    queue = queue_of(run, overlap=2)
    Queue.across_teams.filter(pk=queue.pk).update(name=TEXTS[0], rubric=[{"name": "q", "label": TEXTS[1], "kind": "choice", "choices": TEXTS[:3]}])
    item = queue.items.get()
    words = {"rationale": " ".join(TEXTS), "correction": " ".join(TEXTS), "rubric": {"q": TEXTS[2]}}
    judgement = judge(item, first, "a", **words)
    judge(item, second, "b", **words)
    reviewed(as_owner, judgement, "accept", TEXTS[0])
    urls = [f"/label/{queue.pk}/{name}/" for name in ("quality", "conflicts", "review", "conflicts/?reveal=1", "review/?state=accepted")]
    urls = [url.replace("/?", "/?").removesuffix("/") if "?" in url else url for url in urls]
    for url in (*urls, f"/label/items/{item.pk}/"):
        body = page(as_owner, url)
        assert f"<script>window.{MARK}" not in body
        assert "<img src=x" not in body
        assert "<svg onload" not in body


def test_other_teams_find_nothing_and_unknown_parameters_are_ignored(queue: Queue, conflict: Item, as_owner: Client, as_stranger: Client) -> None:
    judgement = Judgement.objects.filter(item=conflict)[0]
    for url in (f"/label/{queue.pk}/quality/", f"/label/{queue.pk}/conflicts/", f"/label/{queue.pk}/review/", f"/label/items/{conflict.pk}/"):
        assert as_stranger.get(url).status_code == 404
        assert as_owner.get(f"{url}?x=1&item=abc&judgement=99999999999999999999999&by=-1&page=zz&state=%00&labeller=²").status_code == 200
    assert decided(as_stranger, conflict, {"choice": "1"}).status_code == 404
    assert reviewed(as_stranger, judgement, "accept").status_code == 404
    assert as_stranger.post(f"/label/{queue.pk}/review/accept/", {"by": 1}).status_code == 404
