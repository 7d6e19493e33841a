"""Rows come from files, from frozen dataset versions, and from what a worker fetches; each is what the version says it is."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.test import Client

from lab.data.datasets.models import Dataset, Form, Source, Version, VersionState
from lab.data.tasks import fetching
from lab.data.tasks.models import Fetch, FetchState, TaskVersion
from lab.data.tasks.sources import HUB
from lab.teams.accounts.models import Team
from lab.training.runs.references import datasets_of
from tests.lab.tasks.making import QUESTIONS, inputs, make_task, token_of, upload

CONVERSATION = [{"role": "user", "content": "2+2?"}]


def test_json_lines_with_conversations_nested_fields_and_invalid_rows(as_owner: Client, team: Team) -> None:
    rows: list[Any] = [
        {"prompt": CONVERSATION, "answer": {"value": 4}, "meta": {"a": [1, 2]}},
        {"prompt": ""},
        7,
        {"prompt": "3+3? \ud83d\ude00", "answer": 6.0},
    ]
    content = b"".join(json.dumps(row).encode() + b"\n" for row in rows)
    token = token_of(upload(as_owner, content, name="rows.jsonl"))
    chosen = {"column_prompt": "prompt", "data": ["meta"], "share": "0"}
    refused = as_owner.post("/tasks/new/", inputs(upload=token, **chosen))
    assert "2 rows are invalid. Line 2: prompt is empty." in refused.content.decode()
    version = make_task(as_owner, content, skip="1", **chosen)
    lines = [json.loads(line) for line in version.path.read_text().splitlines()][1:]
    assert lines == [
        {"prompt": CONVERSATION, "reference": '{"value": 4}', "data": {"meta": {"a": [1, 2]}}, "split": "train"},
        {"prompt": "3+3? 😀", "reference": "6", "split": "train"},
    ]
    assert version.counts["invalid"] == [[2, "prompt is empty"], [3, "is not an object with columns"]]


def test_a_reference_is_what_follows_the_marker(as_owner: Client, team: Team) -> None:
    content = b'{"question": "a", "answer": "2 * 3 = 6 #### 5 #### 6"}\n'
    version = make_task(as_owner, content, after="####", share="0", column_demonstration="answer")
    [row] = [json.loads(line) for line in version.path.read_text().splitlines()][1:]
    assert (row["reference"], row["demonstration"]) == ("6", "2 * 3 = 6 #### 5 #### 6")


def test_a_frozen_dataset_version_is_a_source(as_owner: Client, team: Team) -> None:
    dataset = Dataset.objects.create(team=team, name="Prompts", form=Form.PROMPT, source=Source.IMPORT)
    version = Version.objects.create(dataset=dataset, number=3, state=VersionState.READY, train_file="p.jsonl", counts={"train": 4})
    datasets_of(team).mkdir(parents=True)
    rows = [{"prompt": [{"role": "user", "content": f"{number}?"}], "reference": str(number)} for number in range(4)]
    version.path().write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert "Prompts v3" in as_owner.get("/tasks/new/").content.decode()
    page = as_owner.get(f"/tasks/new/?dataset={version.pk}").content.decode()
    assert 'name="dataset" value' in page
    made = as_owner.post("/tasks/new/", inputs(dataset=str(version.pk), column_prompt="prompt", column_reference="reference", share="0"))
    assert made.status_code == 302
    task = TaskVersion.across_teams.get()
    assert (task.source["kind"], task.source["version"], task.counts["train"]) == ("dataset", version.pk, 4)
    assert f"/datasets/versions/{version.pk}/" in as_owner.get(f"/tasks/{task.task_id}/").content.decode()
    assert as_owner.get("/tasks/new/?dataset=999999").status_code == 404


def fetched(team: Team) -> Fetch:
    return Fetch.objects.of(team).get()


def test_a_worker_fetches_rows_and_the_form_goes_on_with_them(as_owner: Client, team: Team, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetching, "send_task_message", lambda task, fetch_id: None)
    asked = {"act": "fetch", "kind": "hub", "hub_name": "openai/gsm8k", "hub_config": "main", "hub_split": "train", "hub_rows": "100"}
    response = as_owner.post("/tasks/new/", asked)
    fetch = fetched(team)
    assert response["Location"].endswith(f"?fetch={fetch.pk}")
    assert "Waiting for a worker" in as_owner.get(response["Location"]).content.decode()

    def write_rows(fetch: Fetch, file: Any) -> dict[str, str]:
        file.write_text("".join(json.dumps(row) + "\n" for row in QUESTIONS))
        return {"commit": "abc"}

    monkeypatch.setattr(fetching, "fetch_into", write_rows)
    fetching.run_fetch(str(fetch.pk))
    fetching.run_fetch(str(fetch.pk))  # a message that came twice
    assert fetched(team).state == FetchState.READY
    assert as_owner.get(f"/tasks/fetches/{fetch.pk}/")["HX-Refresh"] == "true"
    assert 'value="question" selected' in as_owner.get(response["Location"]).content.decode()
    assert as_owner.post("/tasks/new/", inputs(fetch=str(fetch.pk))).status_code == 302
    source = TaskVersion.across_teams.get().source
    assert (source["kind"], source["commit"], source["name"]) == (HUB, "abc", "openai-gsm8k.jsonl")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"kind": "hub", "hub_name": "../../etc"}, "This is no id of a dataset on the hub."),
        ({"kind": "hub", "hub_name": "a/b", "hub_split": "train; rm"}, "This is no split."),
        ({"kind": "hub", "hub_name": "a/b", "hub_rows": "0"}, "The number of rows is from 1 to 100,000."),
        ({"kind": "gym", "gym_name": "__import__('os')"}, "Enter a generator of the package."),
    ],
)
def test_what_is_no_id_is_refused_at_its_field(as_owner: Client, team: Team, given: dict[str, str], words: str) -> None:
    response = as_owner.post("/tasks/new/", {"act": "fetch", **given})
    assert response.status_code == 422
    assert words in response.content.decode()
    assert not Fetch.across_teams.exists()


def test_the_real_child_says_what_the_worker_lacks(as_owner: Client, team: Team, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetching, "send_task_message", lambda task, fetch_id: None)
    as_owner.post("/tasks/new/", {"act": "fetch", "kind": "gym", "gym_name": "leg_counting", "gym_rows": "5"})
    fetching.run_fetch(str(fetched(team).pk))
    assert fetched(team).state == FetchState.FAILED
    assert "reasoning-gym is not installed on this worker" in fetched(team).error
    assert "Choose again" in as_owner.get(f"/tasks/new/?fetch={fetched(team).pk}").content.decode()
