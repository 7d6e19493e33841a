"""Imports train: prompts with references by GRPO, marked steps by KTO; what cannot says why."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client

from lab.data.datasets.freezing import build_version
from lab.data.datasets.models import Form, Version, VersionState
from lab.data.loop.train_launch import goals_of
from lab.data.loop.training_goals import GOALS, explain_goal_refusal
from lab.teams.accounts.models import Team
from lab.training.runs.models import Run
from tests.lab.loop.making import finished_run

SUMS = [{"prompt": f"What is {n} + 1?", "reference": str(n + 1)} for n in range(16)]
STEPS = [{"prompt": f"What is {n} + 1?", "completions": [f"{n} + 1", f"is {n + n % 2}"], "labels": [True, n % 2 == 1]} for n in range(8)]


def imported(client: Client, rows: list[dict[str, Any]]) -> Version:
    content = "\n".join(map(json.dumps, rows)).encode()
    token = client.post("/datasets/import/", {"file": SimpleUploadedFile("rows.jsonl", content)})["Location"].split("upload=")[1]
    sent = {"upload": token, "act": "make", "name": "Theirs", "rule": "1", "test_share": "0"}
    assert client.post("/datasets/import/", sent).status_code == 302
    version = Version.across_teams.get()
    build_version(version.pk)
    version.refresh_from_db()
    assert version.state == VersionState.READY, version.error
    return version


@pytest.mark.parametrize(
    ("rows", "form", "trainer"),
    [(SUMS, Form.PROMPT, "grpo"), (SUMS, Form.PROMPT, "rloo"), (SUMS, Form.PROMPT, "online-dpo"), (STEPS, Form.STEPWISE, "kto")],
)
def test_an_import_is_trained_on(as_owner: Client, team: Team, rows: list[dict[str, Any]], form: Form, trainer: str) -> None:
    source = finished_run(team)
    version = imported(as_owner, rows)
    assert version.dataset.form == form
    assert [goal.trainer for goal in goals_of(version)] == (["kto"] if form == Form.STEPWISE else ["grpo", "rloo", "online-dpo"])
    page = as_owner.get(f"/datasets/versions/{version.pk}/train/", {"trainer": trainer}).content.decode()
    assert f'name="trainer" value="{trainer}"' in page
    assert ("counts as good if every step is right" in page) == (form == Form.STEPWISE)
    sent = {"trainer": trainer, "name": "Taught", "policy": f"{source.pk}:final"}
    response = as_owner.post(f"/datasets/versions/{version.pk}/train/", sent)
    assert response.status_code == 302, response.content.decode()
    run = Run.across_teams.get(name="Taught")
    assert run.spec["training"]["trainer"] == trainer
    assert run.spec["dataset"]["path"].endswith(version.train_file)


def test_what_does_not_fit_an_import_says_what_to_import(as_owner: Client) -> None:
    version = imported(as_owner, SUMS)
    told = {goal.trainer: explain_goal_refusal(goal, version) for goal in GOALS}
    assert told["dpo"] == "Needs preference pairs; this version holds prompts with references. Import a file of preference pairs."
    assert told["grpo"] == ""
