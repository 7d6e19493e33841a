"""The pages of datasets: from a queue to a frozen version, what is refused and why, what another team sees: nothing."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.test import Client

from lab.data.datasets.freezing import build_version
from lab.data.datasets.models import Dataset, Recall, RecallKind, Version, VersionState
from lab.labelling.labels.models import Judgement, Preference, Queue
from lab.rollouts.trajectories.models import Rollout
from lab.teams.accounts.models import Role, Team, User
from tests.conftest import make_member
from tests.hostile import PAYLOADS, stored
from tests.lab.datasets.labelled import dataset_of, groups_of, judge_all, queue_of, run_with

RULE = {"rule": "1", "test_share": "0", "dedupe": "on", "finished_only": "on", "ties_against": "on"}


@pytest.fixture
def queue(team: Team, owner: User, teammate: User) -> Queue:
    made = queue_of(team, owner, groups_of(run_with(team)), overlap=2)
    judge_all(made, [owner, teammate])
    return made


@pytest.fixture
def dataset(team: Team, owner: User, queue: Queue) -> Dataset:
    return dataset_of(team, owner, queue)


def frozen(client: Client, dataset: Dataset, queue: Queue, **fields: Any) -> Version:
    response = client.post(f"/datasets/{dataset.pk}/freeze/", {**RULE, "queues": [queue.pk], **fields})
    assert response.status_code == 302, response.content.decode()
    version = dataset.versions.first()
    assert version is not None
    build_version(version.pk)
    version.refresh_from_db()
    return version


def page(client: Client, url: str, **query: Any) -> str:
    response = client.get(url, query)
    assert response.status_code == 200
    return str(response.content.decode())


def test_from_a_queue_to_a_version(as_owner: Client, team: Team, queue: Queue) -> None:
    assert "No datasets yet" in page(as_owner, "/datasets/")
    made = as_owner.post("/datasets/new/", {"name": "First", "form": "preference", "queue": [queue.pk]})
    dataset = Dataset.across_teams.get()
    assert made["Location"] == f"/datasets/{dataset.pk}/"
    assert "No versions yet" in page(as_owner, f"/datasets/{dataset.pk}/")
    preview = page(as_owner, f"/datasets/{dataset.pk}/preview/", **RULE, queues=queue.pk, last_step=2)
    assert re.findall(r"<dd>(\d+)</dd>", preview) == ["4", "0", "6"]
    assert "answers of other steps" in preview
    version = frozen(as_owner, dataset, queue, notes="the first", last_step="2")
    assert (version.state, version.rule["last_step"], version.notes) == (VersionState.READY, 2, "the first")
    assert version.created_by is not None
    shown = page(as_owner, f"/datasets/versions/{version.pk}/")
    assert version.digest in shown
    assert "To step 2" in shown
    assert f"/rollouts/{version.rows.get(place=0).rollouts[0]}/" in shown
    assert f"/datasets/versions/{version.pk}/" in page(as_owner, "/datasets/")
    assert "The same rows as v1" in page(as_owner, f"/datasets/{dataset.pk}/preview/")


def test_what_cannot_work_is_named_and_nothing_is_lost(as_owner: Client, dataset: Dataset, queue: Queue) -> None:
    wrong = as_owner.post(f"/datasets/{dataset.pk}/freeze/", {**RULE, "queues": [queue.pk], "test_share": "2", "notes": "keep me"})
    assert wrong.status_code == 422
    assert "test share: 2.0 is out of range" in wrong.content.decode()
    assert "keep me" in wrong.content.decode()
    assert 'value="2"' in wrong.content.decode()
    words = as_owner.post(f"/datasets/{dataset.pk}/freeze/", {**RULE, "queues": [queue.pk], "min_labels": "many"})
    assert "is not a whole number" in words.content.decode()
    nowhere = as_owner.post(f"/datasets/{dataset.pk}/freeze/", RULE)
    assert "No queue is chosen" in nowhere.content.decode()
    dataset.refresh_from_db()
    assert not dataset.versions.exists()
    assert list(dataset.queues.all()) == [queue]
    for sent, word in (({}, "Enter a name"), ({"name": "x" * 101, "queue": queue.pk}, "at most 100"), ({"name": "x"}, "No queue is chosen")):
        response = as_owner.post("/datasets/new/", sent)
        assert response.status_code == 422
        assert word in response.content.decode()


def test_addresses_that_make_no_sense_are_no_errors(as_owner: Client, dataset: Dataset, queue: Queue) -> None:
    version = frozen(as_owner, dataset, queue)
    huge = "9" * 30
    for query in ({"page": huge}, {"labeller": huge}, {"split": "x", "only": "y", "unknown": "z"}, {"q": "\0"}, {"labeller": "²"}):
        assert page(as_owner, f"/datasets/versions/{version.pk}/", **query)
    for query in ({"against": "²"}, {"against": huge}, {"against": "now", "kind": "x", "page": huge}, {}):
        assert page(as_owner, f"/datasets/versions/{version.pk}/diff/", **query)
    for url in (
        f"/datasets/{huge}/",
        f"/datasets/versions/{huge}/",
        "/datasets/versions/0/",
        f"/datasets/versions/{version.pk}/diff/?against=999999",
    ):
        assert as_owner.get(url).status_code == 404
    assert page(as_owner, f"/datasets/{dataset.pk}/preview/", **RULE, queues=[huge, "²"], max_age=huge)
    assert as_owner.get("/datasets/new/", {"queue": huge}).status_code == 200


def test_rows_are_filtered(as_owner: Client, dataset: Dataset, queue: Queue, teammate: User) -> None:
    Judgement.across_teams.filter(user=teammate, item=queue.items.first()).delete()
    version = frozen(as_owner, dataset, queue)
    assert page(as_owner, f"/datasets/versions/{version.pk}/", labeller=teammate.pk).count('class="pair-row"') == 5
    assert page(as_owner, f"/datasets/versions/{version.pk}/", q="answer 1.0.0").count('class="pair-row"') == 1
    assert "No results" in page(as_owner, f"/datasets/versions/{version.pk}/", split="test")


def test_changed_labels_are_told_and_shown_without_changing_the_version(as_owner: Client, dataset: Dataset, queue: Queue) -> None:
    version = frozen(as_owner, dataset, queue)
    since = f"/datasets/versions/{version.pk}/since/"
    assert "the same rows" in page(as_owner, since)
    first = queue.items.order_by("place").first()
    assert first is not None
    Preference.objects.filter(item=first).update(chosen=first.rollouts[1], rejected=first.rollouts[0])
    assert "1 row would differ" in page(as_owner, since)
    diff = page(as_owner, f"/datasets/versions/{version.pk}/diff/", against="now")
    assert "Flipped 1" in diff
    assert diff.count('class="pair-row"') == 1
    second = frozen(as_owner, dataset, queue, last_step="2")
    diff = page(as_owner, f"/datasets/versions/{version.pk}/diff/", against=second.pk, kind="removed")
    assert "Removed 2" in diff
    assert diff.count('class="pair-row"') == 2
    backwards = page(as_owner, f"/datasets/versions/{second.pk}/diff/", against=version.pk)
    assert "From v1 to v2" in backwards
    assert "Removed 2" in backwards  # the older version stands before, whichever page was open
    replayed = page(as_owner, f"/datasets/versions/{version.pk}/diff/", against="now", **RULE, queues=queue.pk, first_step=3)
    assert "Removed 4" in replayed  # label replay: another rule on the same labels


def test_a_failed_build_says_why_and_is_tried_again(as_owner: Client, dataset: Dataset, queue: Queue) -> None:
    version = frozen(as_owner, dataset, queue, min_labels="3")
    shown = page(as_owner, f"/datasets/versions/{version.pk}/")
    assert "6 items with too few labels" in shown
    assert as_owner.post(f"/datasets/versions/{version.pk}/retry/").status_code == 302
    version.refresh_from_db()
    assert version.state == VersionState.QUEUED
    part = as_owner.get(f"/datasets/versions/{version.pk}/", {"part": "state"})
    assert "HX-Refresh" not in part
    assert b"Waiting for a worker" in part.content


def test_recalls_flag_the_version_wherever_it_is_shown(as_owner: Client, dataset: Dataset, queue: Queue, team: Team, owner: User) -> None:
    version = frozen(as_owner, dataset, queue)
    Recall.objects.create(team=team, kind=RecallKind.QUEUE, queue=queue, reason="wrong guidelines", by=owner)
    assert "wrong guidelines" in page(as_owner, f"/datasets/versions/{version.pk}/")
    for url in ("/datasets/", f"/datasets/{dataset.pk}/"):
        assert "recalled labels" in page(as_owner, url)


def test_viewers_only_read_and_annotators_see_nothing(client: Client, dataset: Dataset, queue: Queue, team: Team, as_owner: Client) -> None:
    version = frozen(as_owner, dataset, queue)
    reader = Client()
    annotator = Client()
    reader.force_login(make_member("viewer@example.org", team, Role.VIEWER))
    annotator.force_login(make_member("annotator@example.org", team, Role.ANNOTATOR))
    for url in ("/datasets/", f"/datasets/{dataset.pk}/", f"/datasets/versions/{version.pk}/"):
        assert "Freeze" not in page(reader, url).replace("Frozen", "")
        assert annotator.get(url).status_code == 403
    for url in ("/datasets/new/", f"/datasets/{dataset.pk}/freeze/", f"/datasets/versions/{version.pk}/retry/", "/datasets/import/"):
        assert reader.post(url, RULE).status_code == 403
    assert dataset.versions.count() == 1


def test_queues_of_another_team_cannot_be_taken(as_stranger: Client, dataset: Dataset, queue: Queue) -> None:
    assert as_stranger.post("/datasets/new/", {"name": "Theirs", "queue": [queue.pk]}).status_code == 422
    for url in (f"/datasets/{dataset.pk}/", f"/datasets/{dataset.pk}/preview/"):
        assert as_stranger.get(url).status_code == 404
    assert as_stranger.post(f"/datasets/{dataset.pk}/freeze/", RULE).status_code == 404


def test_texts_are_shown_as_text(as_owner: Client, team: Team, owner: User) -> None:
    run = run_with(team, steps=len(PAYLOADS), groups=1)
    for step, text in enumerate(PAYLOADS, 1):
        Rollout.objects.filter(run=run, step=step, sample=0).update(completion=stored(text) + " .")
    queue = queue_of(team, owner, groups_of(run))
    judge_all(queue, [owner])
    dataset = dataset_of(team, owner, queue, name="<script>alert(1)</script>")
    version = frozen(as_owner, dataset, queue, notes="<img src=x onerror=alert(1)>")
    shown = "".join(page(as_owner, f"/datasets/versions/{version.pk}/", page=number) for number in (1, 2))
    shown += page(as_owner, "/datasets/") + page(as_owner, f"/datasets/{dataset.pk}/") + page(as_owner, f"/datasets/{dataset.pk}/preview/")
    for sign in ("<script>window", "<script>alert", "<img src=x", "<svg onload", "<iframe", "<b hx-get"):
        assert sign not in shown


@pytest.mark.parametrize(("form", "word"), [("kto", "+ Good"), ("completion", "corrected by a person")])
def test_other_forms_are_shown(as_owner: Client, team: Team, owner: User, queue: Queue, form: str, word: str) -> None:
    Judgement.across_teams.filter(user=owner).update(correction="Better so.")
    dataset = dataset_of(team, owner, queue, form=form)
    assert "Cleaning" not in page(as_owner, f"/datasets/{dataset.pk}/")
    version = frozen(as_owner, dataset, queue, corrections="use")
    shown = page(as_owner, f"/datasets/versions/{version.pk}/")
    assert word in shown
    assert "Better so." in shown
    assert "Better so." in page(as_owner, f"/datasets/{dataset.pk}/preview/")
