"""Experiments over the API: training on a frozen version, ablations, projects, usage, lineage, what the doctor found."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from lab.accounts.models import Team, User
from lab.api import tokens
from lab.audit.models import Entry
from lab.datasets.models import Version
from lab.loop.models import Match
from lab.runs.models import Run
from tests.lab.api.conftest import ApiClient, client_of
from tests.lab.loop.making import finished_run, frozen, labelled_queue, sampled


@pytest.fixture
def version(team: Team, owner: User, settings: Any, tmp_path: Any) -> Version:
    settings.DATASETS_ROOT = tmp_path / "datasets"
    run = finished_run(team, owner, *sampled(50, 52), kept=(50, 90))
    return frozen(team, owner, labelled_queue(team, owner, run))


def fields(response: Any) -> list[str]:
    assert response.status_code == 422, response.content
    return [one["field"] for one in response.json()["errors"]]


def test_training_on_a_version_starts_from_what_sampled_its_rows(api: ApiClient, version: Version) -> None:
    source = Run.objects.get()
    found = api.ask(f"versions/{version.pk}/training").json()
    assert (found["trainer"], found["policy"]["run"], found["policy"]["checkpoint"]) == ("dpo", str(source.pk), 50)
    assert {one["checkpoint"] for one in found["policies"]} == {"start", 50, 90, "final"}
    assert [one["trainer"] for one in found["goals"] if not one["refusal"]] == ["dpo", "reward"]
    assert found["spec"]["policy"] == {"kind": "run", "run": str(source.pk), "checkpoint": 50}
    assert found["spec"]["dataset"]["file"] == version.train_file
    response = api.send(f"versions/{version.pk}/train", {"max_steps": 7, "overrides": {"training": {"beta": 0.2}}, "check": False})
    assert response.status_code == 201, response.content
    [made] = response.json()["runs"]
    run = Run.objects.get(pk=made["id"])
    assert (made["trainer"], made["total_steps"], run.spec["training"]["beta"]) == ("dpo", 7, 0.2)
    assert run.spec["policy"] == {"kind": "run", "folder": str(source.folder), "checkpoint": 50}
    assert run.spec["dataset"] == {"path": str(version.path()), "sha256": version.counts["sha256"]["train"]}
    assert not Match.objects.exists()
    assert Entry.objects.filter(action="run.launch", via="api", object_id=str(run.pk)).exists()


def test_a_match_is_asked_for_with_the_run_and_both_are_made_once(api: ApiClient, version: Version, owner: User) -> None:
    source = Run.objects.get()
    policy = {"run": str(source.pk), "checkpoint": "final"}
    body = {"policy": policy, "evaluation": 64, "match": {"prompts": 40, "labellers": [owner.pk]}, "check": False}
    answers = [api.send(f"versions/{version.pk}/train", body, **{"Idempotency-Key": "taught"}) for _ in range(2)]
    assert [one.status_code for one in answers] == [201, 200]
    match = Match.objects.get()
    assert (match.child.parent, match.version, match.prompts, match.overlap, match.labellers) == (source, version, 40, 1, [owner.pk])


def test_what_training_cannot_use_names_its_field_and_launches_nothing(api: ApiClient, version: Version) -> None:
    at, source = f"versions/{version.pk}/train", Run.objects.get()
    for body, wrong in (
        ({"trainer": "kto"}, ["trainer"]),
        ({"trainer": "ppo"}, ["trainer"]),
        ({"policy": {"run": str(uuid.uuid4())}}, ["policy"]),
        ({"policy": {"run": str(source.pk), "checkpoint": 77}}, ["policy"]),
        ({"policy": {"run": str(source.pk), "checkpoint": "best"}}, ["policy.checkpoint"]),
        ({"learning_rate": 7, "max_steps": 0, "batch": 10**30}, ["batch", "learning_rate", "max_steps"]),
        ({"evaluation": 0, "match": {}}, ["evaluation"]),
        ({"overrides": {"evaluation": {"prompts": 0}}, "match": {}}, ["overrides.evaluation.prompts"]),
        ({"match": {"labellers": [10**9]}}, ["match.labellers"]),
        ({"trainer": "reward", "match": {}}, ["match"]),
        ({"overrides": {"policy": {"kind": "tiny"}, "training": {"trainer": "kto"}}}, ["overrides.policy", "overrides.training.trainer"]),
        ({"overrides": {"training": {"beta": -1}}}, ["overrides.training.beta"]),
        ({"odd": 1}, ["odd"]),
    ):
        assert sorted(fields(api.send(at, {"check": False, **body}))) == sorted(wrong), body
    assert Run.objects.count() == 1
    assert not Match.objects.exists()


def test_a_version_that_is_not_ready_trains_nothing(api: ApiClient, version: Version) -> None:
    Version.objects.update(state="building")
    response = api.send(f"versions/{version.pk}/train", {"check": False})
    assert (response.status_code, api.ask(f"versions/{version.pk}/training").status_code) == (409, 409)
    assert "is building" in response.json()["detail"]


def test_a_match_wants_a_person_and_the_scope_for_queues(team: Team, owner: User, version: Version) -> None:
    launching = client_of(team, owner, "runs.launch", "runs.read")
    refused = launching.send(f"versions/{version.pk}/train", {"match": {}, "check": False})
    assert (refused.status_code, "label.lead" in refused.json()["detail"]) == (403, True)
    _, secret = tokens.create(team, None, "nightly", ["runs.launch", "label.lead"], None, role="researcher", by=owner)
    service = ApiClient(secret)
    assert service.send(f"versions/{version.pk}/train", {"match": {}, "check": False}).status_code == 403
    assert service.send(f"versions/{version.pk}/train", {"check": False}).status_code == 201
    assert Run.objects.get(trainer="dpo").created_by is None
