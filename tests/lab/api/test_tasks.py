"""A script makes tasks as the page does: rows are uploaded, a version is made, previewed, changed and deleted."""

from __future__ import annotations

from typing import Any

import pytest

from lab.data.tasks.models import Task
from lab.teams.accounts.models import Team
from tests.lab.api.conftest import ApiClient
from tests.lab.tasks.making import QUESTIONS, write_csv

REWARD = {"name": "accuracy", "definition": {"kind": "library", "function": "exact-match"}}
COLUMNS = {"prompt": "question", "reference": "answer"}


@pytest.fixture(autouse=True)
def dataset_folders(tmp_path: Any, settings: Any) -> None:
    settings.DATASETS_ROOT = tmp_path / "datasets"


def upload(api: ApiClient, content: bytes | None = None) -> Any:
    return api.post(
        "/api/v1/tasks/uploads?file=sums.csv", write_csv(QUESTIONS) if content is None else content, content_type="application/octet-stream"
    )


def test_a_task_is_made_changed_and_deleted(api: ApiClient, team: Team) -> None:
    sent = upload(api)
    assert sent.status_code == 201, sent.content
    assert sent.json()["columns"] == ["question", "answer", "level"]
    assert sent.json()["suggested"]["prompt"] == "question"
    body = {"name": "Sums", "source": {"upload": sent.json()["upload"]}, "columns": COLUMNS, "rewards": [REWARD]}
    made = api.send("tasks", body)
    assert made.status_code == 201, made.content
    first = made.json()
    assert first["counts"]["rows"] == 40
    again = api.send(f"tasks/{first['task']}/versions", {**body, "source": {}, "system": "Answer with a number."})
    assert (again.status_code, again.json()["number"]) == (201, 2), again.content
    [change] = api.ask(f"tasks/{first['task']}/diff?old=1&new=2").json()
    assert change == {"title": "System prompt", "text": "A system prompt was added."}
    assert [task["name"] for task in api.ask("tasks").json()["items"]] == ["Sums"]
    assert len(api.ask(f"tasks/{first['task']}").json()["history"]) == 2
    assert api.ask(f"tasks/versions/{first['id']}").json()["sha256"] == first["sha256"]
    assert api.delete(f"/api/v1/tasks/{first['task']}").status_code == 204
    assert not Task.objects.of(team).exists()
    assert api.send(f"tasks/{first['task']}/restore", {}).status_code == 200


def test_what_is_wrong_is_named_where_the_body_has_it(api: ApiClient, team: Team) -> None:
    body = {"name": "Sums", "source": {"upload": upload(api).json()["upload"]}, "columns": COLUMNS, "rewards": [REWARD]}

    def fields(**changes: Any) -> list[str]:
        answer = api.send("tasks", {**body, **changes})
        assert answer.status_code == 422, answer.content
        return [error["field"] for error in answer.json()["errors"]]

    assert fields(source={}) == ["source"]
    assert fields(source={"upload": "0" * 32}) == ["source"]
    assert fields(columns={"prompt": "nothing"}) == ["skip", "columns.prompt"]
    assert fields(rewards=[{"name": "accuracy", "definition": {"kind": "library", "function": "none"}}]) == ["rewards.0.definition.function"]
    assert fields(rewards=[{"name": "A B", "definition": REWARD["definition"]}]) == ["rewards.0.name"]
    assert fields(split={"share": 2}) == ["split.share"]
    for content in (b"", b"{}", b"[1, 2]"):
        assert [error["field"] for error in upload(api, content).json()["errors"]] == ["the body"]
    assert not Task.objects.of(team).exists()


def test_a_preview_renders_and_scores(api: ApiClient, team: Team) -> None:
    body = {"name": "Sums", "source": {"upload": upload(api).json()["upload"]}, "columns": COLUMNS, "rewards": [REWARD], "pasted": ["2"]}
    found = api.send("tasks/preview", body)
    assert found.status_code == 200, found.content
    row = found.json()["rows"][1]
    assert [(answer["kind"], answer["reward"]) for answer in row["answers"]] == [("reference", 1.0), ("empty", 0.0), ("pasted", 1.0)]
    assert "".join(text for text, _ in row["tokens"]).count("What is 1 + 1?") == 1
    assert api.send("tasks/preview", {**body, "policy": {"kind": "folder", "folder": "none"}}).json()["errors"][0]["field"] == "policy"
