"""Tasks as people make them: an upload, and the form that the page would send."""

from __future__ import annotations

import csv
import io
from typing import Any

from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client

from lab.data.tasks.models import TaskVersion

QUESTIONS = [{"question": f"What is {number} + {number}?", "answer": str(2 * number), "level": str(number % 3)} for number in range(40)]


def write_csv(rows: list[dict[str, Any]]) -> bytes:
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]))
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().encode()


def upload(client: Client, content: bytes | None = None, name: str = "sums.csv", **more: Any) -> Any:
    file = SimpleUploadedFile(name, write_csv(QUESTIONS) if content is None else content)
    return client.post("/tasks/new/", {"file": file, **more})


def token_of(response: Any) -> str:
    assert response.status_code == 302, response.content.decode()
    return str(response["Location"].split("upload=")[1])


def inputs(**changes: Any) -> dict[str, Any]:
    """What the form sends, with one exact-match reward."""
    reward = {"choice": "library:exact-match", "shown": "library:exact-match", "name": "accuracy", "weight": "1"}
    given = {
        "name": "Sums",
        "column_prompt": "question",
        "column_reference": "answer",
        "split": "share",
        "share": "20",
        "rewards": "1",
        "act": "make",
    }
    return (
        given
        | {f"reward.0.{name}": value for name, value in reward.items()}
        | {f"reward.0.config.{name}": "whole" for name in ("answer", "reference_answer")}
        | changes
    )


def make_task(client: Client, content: bytes | None = None, **changes: Any) -> TaskVersion:
    token = token_of(upload(client, content))
    response = client.post("/tasks/new/", inputs(upload=token, **changes))
    assert response.status_code == 302, response.content.decode()
    return TaskVersion.across_teams.latest("pk")
