"""Datasets over the API: a file imported, training on a version, from which policy, and where a broken row stands."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from lab.data.datasets.freezing import build_version
from lab.data.datasets.models import Dataset, Row, Version
from lab.teams.accounts.models import Team, User
from lab.training.runs.models import Run
from lab.training.runs.references import datasets_of
from tests.lab.api.conftest import ApiClient
from tests.lab.loop.making import finished_run, frozen, labelled_queue, place_folder, sampled
from tests.lab.test_ablations import STACKED

ROWS = '{"prompt": "1+1?", "reference": "2"}\n{"prompt": "2+2?", "refrence": "4"}\n'
WHERE = "mine.jsonl line 2: reference is missing; it has prompt, refrence"


@pytest.fixture
def version(team: Team, owner: User, settings: Any, tmp_path: Any) -> Version:
    settings.DATASETS_ROOT, settings.POLICIES_ROOT = tmp_path / "datasets", tmp_path / "policies"
    place_folder(tmp_path / "policies/small-qwen")
    run = finished_run(team, owner, *sampled(50, 52), kept=(50, 90))
    return frozen(team, owner, labelled_queue(team, owner, run))


@pytest.fixture
def imported(version: Version) -> Version:
    Row.objects.filter(version=version).update(rollouts=[])
    return version


@pytest.fixture
def train(api: ApiClient, version: Version) -> Callable[..., Any]:
    def train(**body: Any) -> Any:
        return api.send(f"versions/{version.pk}/train", {"check": False, **body})

    return train


def test_without_a_policy_that_sampled_the_rows_one_has_to_be_named(api: ApiClient, imported: Version, train: Callable[..., Any]) -> None:
    found = api.ask(f"versions/{imported.pk}/training").json()
    assert (found["policy"], found["spec"]) == (None, None)
    refused = train()
    [error] = refused.json()["errors"]
    assert (refused.status_code, error["field"], "give one" in error["fix"]) == (422, "policy", True)
    assert Run.across_teams.count() == 1
    source = Run.across_teams.get()
    assert train(policy={"run": str(source.pk)}).status_code == 201


def test_the_built_in_policy_folders_and_hub_models_are_trained_from(imported: Version, train: Callable[..., Any]) -> None:
    made = train(policy={"kind": "folder", "folder": "small-qwen"}, overrides={"task": {"name": "calendar"}}, match={})
    assert made.status_code == 201, made.content
    run = Run.across_teams.get(pk=made.json()["runs"][0]["id"])
    assert (run.spec["policy"]["kind"], run.spec["task"]["name"], run.spec["training"]["learning_rate"]) == ("folder", "calendar", 1e-6)
    made = train(policy={"kind": "hub", "name": "Qwen/Qwen2.5-0.5B-Instruct"}, learning_rate=2e-6)
    run = Run.across_teams.get(pk=made.json()["runs"][0]["id"])
    assert run.spec["policy"] == {"kind": "hub", "name": "Qwen/Qwen2.5-0.5B-Instruct", "revision": "main"}
    assert run.spec["training"]["learning_rate"] == 2e-6
    made = train(policy={"kind": "tiny"})
    assert Run.across_teams.get(pk=made.json()["runs"][0]["id"]).spec["policy"] == {"kind": "tiny", "cold_start": True}


def test_what_is_no_policy_names_its_field(imported: Version, train: Callable[..., Any]) -> None:
    for policy, field in (
        ({}, "policy.run"),
        ({"kind": "folder"}, "policy.folder"),
        ({"kind": "folder", "folder": "../x"}, "policy.folder"),
        ({"kind": "hub"}, "policy.name"),
        ({"kind": "hub", "name": "/etc"}, "policy.name"),
        ({"kind": "hub", "name": "a/b", "checkpoint": "final"}, "policy.checkpoint"),
        ({"kind": "tiny", "name": "a/b"}, "policy.name"),
        ({"kind": "huge"}, "policy.kind"),
    ):
        response = train(policy=policy)
        assert (response.status_code, [one["field"] for one in response.json()["errors"]]) == (422, [field]), policy
    assert Run.across_teams.count() == 1


def test_a_broken_row_says_file_line_and_reason(api: ApiClient, team: Team, version: Version) -> None:
    (datasets_of(team) / "mine.jsonl").write_text(ROWS)
    overrides = {"dataset": {"file": "mine.jsonl"}}
    for path, body in (
        ("runs", {"recipe": "grpo", "overrides": overrides}),
        ("runs/check", {"recipe": "grpo", "overrides": overrides}),
        ("ablations", {"spec": {**STACKED, **overrides}}),
    ):
        response = api.send(path, body)
        assert response.status_code == 422, response.content
        [error] = response.json()["errors"]
        assert (error["field"].endswith("dataset.path"), error["message"], str(datasets_of(team)) in error["message"]) == (True, WHERE, False)
    assert Run.across_teams.count() == 1


def test_a_broken_row_of_a_version_says_its_file_and_line(api: ApiClient, version: Version) -> None:
    version.path().chmod(0o644)
    lines = version.path().read_bytes().splitlines(keepends=True)
    version.path().write_bytes(b"".join([lines[0], b'{"prompt": "x"}\n', *lines[2:]]))
    Version.across_teams.filter(pk=version.pk).update(counts={**version.counts, "sha256": {}})
    response = api.send(f"versions/{version.pk}/train", {"max_steps": 7})
    [error] = response.json()["errors"]
    assert (response.status_code, error["field"]) == (422, "version_id")
    assert error["message"].startswith(f"{version.train_file} line 2: chosen is missing")


def import_file(api: ApiClient, content: bytes, **query: Any) -> Any:
    return api.post(f"/api/v1/datasets/import?{urlencode(query)}", content, content_type="application/octet-stream")


@pytest.mark.feature(80)
def test_a_file_becomes_a_dataset_and_what_stands_in_the_way_is_named(api: ApiClient, team: Team, tmp_path: Path, settings: Any) -> None:
    settings.DATASETS_ROOT = tmp_path / "datasets"
    rows = [{"prompt": f"{number}+1?", "chosen": str(number + 1), "rejected": "0"} for number in range(4)]
    good = "\n".join(map(json.dumps, rows)).encode()
    made = import_file(api, good, name="From a script", file="../../pairs.jsonl", test_share=0)
    assert made.status_code == 201, made.content
    version = Version.objects.of(team).get(pk=made.json()["id"])
    assert (version.dataset.name, version.dataset.form, version.notes) == ("From a script", "preference", "Imported from pairs.jsonl")
    build_version(version.pk)
    assert api.ask(f"versions/{version.pk}").json()["counts"]["train"] == 4

    def refused(content: bytes, **query: Any) -> list[tuple[str, str]]:
        answer = import_file(api, content, **{"name": "x", **query})
        assert answer.status_code == 422, answer.content
        return [(one["field"], one["fix"]) for one in answer.json()["errors"]]

    assert refused(b"")[0][0] == refused(b"PK\x03\x04abc")[0][0] == "the body"
    assert refused(good, format="nothing")[0][0] == "format"
    assert refused(b'{"alpha": 1, "beta": 2}')[0][0] == "format"
    assert refused(good, project=10**9) == [("project", "give the id of one of its projects, or none")]
    assert refused(good, test_share=2)[0][0] == "test_share"
    more = good + b'\n{"prompt": "?", "chosen": "", "rejected": "0"}\n' + json.dumps({**rows[0], "prompt": "9+1?", "mood": "fine"}).encode()
    assert [field for field, _ in refused(more)] == ["skip", "leave"]
    kept = list((tmp_path / "datasets" / ".uploads").glob("*/*"))
    assert not kept, "what was refused is not kept"
    assert import_file(api, more, name="y", skip=True, leave="mood, other").status_code == 201
    assert Dataset.objects.of(team).count() == 2


def test_marked_spans_are_used_only_where_there_are_any(api: ApiClient, version: Version, train: Callable[..., Any]) -> None:
    [error] = train(span_credit=True).json()["errors"]
    assert (error["field"], error["message"]) == ("span_credit", "no row of this version has marked spans")
    Version.across_teams.filter(pk=version.pk).update(counts={**version.counts, "spans": {"rows": 4, "good": 20, "bad": 9}})
    assert api.ask(f"versions/{version.pk}/training").json()["marked_rows"] == 4
    [error] = train(span_credit=True, trainer="reward").json()["errors"]
    assert error["message"] == "reward does not use marked spans"
    made = train(span_credit=True, match={})
    assert Run.across_teams.get(pk=made.json()["runs"][0]["id"]).spec["methods"][0]["name"] == "span-credit"
    assert Run.across_teams.get(pk=train().json()["runs"][0]["id"]).spec["methods"] == []
