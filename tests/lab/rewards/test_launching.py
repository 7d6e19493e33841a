"""Reward functions of the team and of the library in launches: as columns of the spec, kept by a clone, shown on the run's page."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from lab.data.tasks.models import Task
from lab.teams.accounts.models import Team, User
from lab.training.rewards.verbs import add_version
from lab.training.runs.models import Run
from tests.lab.html_forms import error_of, filled, form_values
from tests.lab.rewards.making import EXACT, LENGTH_CODE, make_function

FLAT = {"kind": "code", "source": "def score(completion, reference, data):\n    return 0\n"}


def add(client: Client, inputs: dict[str, str], key: str, act: str = "rewards:add") -> dict[str, str]:
    """The form's inputs after a button of More rewards, as the page without scripts answers."""
    page = client.post("/launch/grpo/", inputs | {"more-add": key, "act": act}).content.decode()
    return form_values(page, "data-launch")


@pytest.mark.feature(13)
def test_a_team_function_and_a_library_function_become_columns_with_weight_shadow_and_origin(as_owner: Client, owner: User, team: Team) -> None:
    own = make_function(team, owner, "Answer length", LENGTH_CODE)
    inputs = add(as_owner, filled(as_owner, "/launch/grpo/"), f"team:{own.function_id}")
    inputs = add(as_owner, inputs, "library:exact-match")
    assert (inputs["more"], inputs["more.0.name"], inputs["more.1.name"], inputs["more.1.weight"]) == ("2", "answer-length", "exact-match", "1")
    wrong = as_owner.post("/launch/grpo/", inputs | {"more.1.name": "Not A Name", "more.0.weight": "2000"})
    assert wrong.status_code == 422
    assert error_of(wrong.content.decode(), "more.1.name")
    assert "1000" in error_of(wrong.content.decode(), "more.0.weight")
    answer = as_owner.post("/launch/grpo/", inputs | {"more.0.weight": "0.25", "more.1.shadow": "on", "more.1.config.answer": "boxed"})
    assert answer.status_code == 302, answer.content.decode()
    run = Run.objects.of(team).get()
    first, second = run.spec["rewards"]
    assert first == {
        "name": "answer-length",
        "definition": LENGTH_CODE,
        "weight": 0.25,
        "shadow": False,
        "origin": {"id": own.function_id, "version": 1},
    }
    assert (second["definition"], second["shadow"], second["origin"]) == ({**EXACT, "config": {"answer": "boxed"}}, True, None)
    config = as_owner.get(f"/runs/{run.pk}/config/").content.decode()
    assert f'href="/rewards/{own.function_id}/?v=1"' in config
    assert "0.25" in config
    assert "exact-match(answer = boxed)" in config
    page = as_owner.get(f"/rewards/{own.function_id}/").content.decode()
    assert f"#{run.number}" in page
    assert "answer-length, weight 0.25" in page


def test_a_clone_keeps_the_columns_and_their_versions_and_a_removed_one_goes(as_owner: Client, owner: User, team: Team) -> None:
    own = make_function(team, owner, "Answer length", LENGTH_CODE)
    inputs = add(as_owner, filled(as_owner, "/launch/grpo/"), f"team:{own.function_id}")
    assert as_owner.post("/launch/grpo/", add(as_owner, inputs, "library:exact-match")).status_code == 302
    add_version(own.function, owner, FLAT)
    run = Run.objects.of(team).get()
    page: Any = as_owner.get(f"/launch/grpo/?clone={run.pk}").content.decode()
    assert "Answer length v1" in page
    inputs = form_values(page, "data-launch")
    assert as_owner.post("/launch/grpo/", add(as_owner, inputs, "", "rewards:remove:1")).status_code == 302
    clone = Run.objects.of(team).get(cloned_from=run)
    assert clone.spec["rewards"] == run.spec["rewards"][:1]


def test_the_section_answers_scripts_alone_and_says_what_is_missing(as_owner: Client) -> None:
    inputs = filled(as_owner, "/launch/grpo/") | {"act": "rewards:add", "more-add": ""}
    part = as_owner.post(reverse("launch-compose"), inputs).content.decode()
    assert "<html" not in part
    assert "Choose a reward function from the list." in part
    assert as_owner.post(reverse("launch-compose"), inputs | {"act": "rewards:paint"}).status_code == 404


def test_a_task_that_uses_a_function_is_named_on_its_page(as_owner: Client, owner: User, team: Team) -> None:
    own = make_function(team, owner, "Answer length", LENGTH_CODE)
    column = {"name": "length", "definition": LENGTH_CODE, "weight": 0.5, "shadow": False, "origin": {"id": own.function_id, "version": 1}}
    about: Any = {"plan": {}, "source": {"name": "own.csv"}, "counts": {}, "file": "none", "sha256": "0" * 64, "size": 1}
    Task.objects.create(team=team, name="questions").versions.create(number=1, definition={"rewards": [column]}, **about)
    page = as_owner.get(f"/rewards/{own.function_id}/").content.decode()
    assert "questions v1" in page
    assert "length, weight 0.5" in page
