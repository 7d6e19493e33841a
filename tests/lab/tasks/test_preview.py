"""The preview shows rows as a model reads them, and what each reward says of answers; nothing of torch gets into the web process."""

from __future__ import annotations

import sys

from django.test import Client

from lab.teams.accounts.models import Team
from tests.lab.tasks.making import QUESTIONS, inputs, token_of, upload, write_csv


def test_rows_are_rendered_and_answers_scored(as_owner: Client, team: Team) -> None:
    before = set(sys.modules)
    token = token_of(upload(as_owner))
    asked = inputs(upload=token, system="Say <answer>.", preview_policy="tiny", preview_completion="230", pasted=["0", "nothing <b>"])
    page = as_owner.post("/tasks/preview/", asked).content.decode()
    assert "&lt;|im_start|&gt;" in page  # the template's own tokens
    assert 'class="special' in page
    for kind in ("reference", "empty", "pasted"):
        assert f'<span class="badge">{kind}</span>' in page
    assert "nothing &lt;b&gt;" in page
    assert "× 1" in page
    assert "do not fit into the model’s context" in page  # 256 tokens, of which 230 are the completion's
    assert "scores nothing below above 0" not in page
    assert not {"torch", "transformers"} & (set(sys.modules) - before)


def test_a_preview_that_cannot_be_says_why(as_owner: Client, team: Team) -> None:
    token = token_of(upload(as_owner, write_csv(QUESTIONS[:3])))
    hub = as_owner.post("/tasks/preview/", inputs(upload=token, preview_policy="hub", preview_hub="owner/none")).content.decode()
    assert "not in this machine&#x27;s cache of the hub" in hub or "not in this machine's cache of the hub" in hub
    for policy, hub_id, words in (("hub", "../x", "This is no model."), ("run:nothing:final", "", "no such run"), ("folder:../..", "", "A path")):
        page = as_owner.post("/tasks/preview/", inputs(upload=token, preview_policy=policy, preview_hub=hub_id)).content.decode()
        assert words in page, page
    never = as_owner.post("/tasks/preview/", inputs(upload=token, column_reference="")).content.decode()
    assert "<bdi>accuracy</bdi>, the task’s accuracy, scores nothing below above 0." in never
    assert "Choose the column with the prompt." in as_owner.post("/tasks/preview/", inputs(upload=token, column_prompt="")).content.decode()
    assert "expired" in as_owner.post("/tasks/preview/", inputs(upload="0" * 32)).content.decode()
