"""A run names the version of a task that it trains on: in the form, in its spec, on its page, and when it is cloned."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from lab.data.tasks.models import Task
from lab.teams.accounts.models import Role, Team
from lab.training.runs.launch import launch_recipe
from lab.training.runs.models import Run
from lab.training.runs.references import restore_reference_names
from lab.training.runs.reward_weights import collect_reward_weights
from tests.conftest import make_member
from tests.lab.html_forms import form_values
from tests.lab.tasks.making import inputs, make_task
from trainers.contract.spec import SpecError

SHORT = {"training": {"max_steps": 1, "prompts": 8, "per_device_train_batch_size": 4, "num_generations": 4}}


def test_the_form_offers_the_newest_version_and_the_run_names_it(as_owner: Client, team: Team) -> None:
    first = make_task(as_owner)
    as_owner.post(f"/tasks/{first.task_id}/edit/", inputs(**{"reward.0.weight": "2"}))
    newest = first.task.versions.get(number=2)
    page = as_owner.get(f"/launch/grpo/?task=version-{newest.pk}").content.decode()
    assert f'value="version-{newest.pk}" checked' in page
    assert f'value="version-{first.pk}"' not in page
    assert "Sums v2" in page
    sent = form_values(page, "data-launch") | {"policy": "tiny-untrained", "stages.0.training.max_steps": "1"}
    response = as_owner.post("/launch/grpo/", sent)
    assert response.status_code == 302, response.content.decode()
    run = Run.across_teams.get()
    assert run.task == "Sums v2"
    assert run.spec["task"]["file"] == {"path": str(newest.path), "sha256": newest.sha256}
    assert run.spec["task"]["rewards"] == {"accuracy": 2.0}
    assert f'/tasks/{newest.task_id}/?v=2"' in as_owner.get(f"/runs/{run.pk}/").content.decode()
    assert f"/runs/{run.pk}/" in as_owner.get(f"/tasks/{newest.task_id}/?v=2").content.decode()
    clone = as_owner.get(f"/launch/grpo/?clone={run.pk}").content.decode()
    assert f'value="version-{newest.pk}" checked' in clone
    assert collect_reward_weights(run.spec) == {"accuracy": 2.0}


def test_a_run_on_an_old_version_is_cloned_on_it(as_owner: Client, team: Team, owner: Any) -> None:
    first = make_task(as_owner)
    [run] = launch_recipe(team, owner, "grpo", {"task": {"version": first.pk}, "policy": {"kind": "tiny", "cold_start": False}, **SHORT})
    assert run.task == "Sums v1"
    assert restore_reference_names(team, run.spec)["task"]["file"] == {"path": first.file, "sha256": first.sha256}
    as_owner.post(f"/tasks/{first.task_id}/edit/", inputs(**{"reward.0.weight": "2"}))
    clone = as_owner.get(f"/launch/grpo/?clone={run.pk}").content.decode()
    assert f'value="version-{first.pk}" checked' in clone
    refused = as_owner.post(f"/tasks/{first.task_id}/delete/", follow=True).content.decode()
    assert f"is the task of run #{run.number}" in refused
    assert Task.objects.of(team).exists()


def test_a_version_of_another_team_or_a_path_is_not_launched(as_owner: Client, team: Team, owner: Any, as_stranger: Client, stranger: Any) -> None:
    version = make_task(as_owner)
    theirs = stranger.memberships.get().team
    for task in ({"version": version.pk}, {"name": "Sums", "file": {"path": str(version.path), "sha256": version.sha256}}, {"version": True}):
        with pytest.raises(SpecError, match="no such version of a task"):
            launch_recipe(theirs, stranger, "grpo", {"task": task, **SHORT})
    for address in (f"/tasks/{version.task_id}/", f"/tasks/{version.task_id}/edit/", f"/tasks/{version.task_id}/diff/"):
        assert as_stranger.get(address).status_code == 404
    elsewhere = {"name": "Sums", "file": {"path": "/etc/passwd", "sha256": version.sha256}}  # the path is the lab's, never the sender's
    [run] = launch_recipe(team, owner, "grpo", {"task": elsewhere, "policy": {"kind": "tiny", "cold_start": False}, **SHORT})
    assert run.spec["task"]["file"]["path"] == str(version.path)


def test_annotators_see_no_tasks_and_viewers_make_none(team: Team, as_owner: Client) -> None:
    version = make_task(as_owner)
    annotator, viewer = Client(), Client()
    annotator.force_login(make_member("annotator@example.org", team, Role.ANNOTATOR))
    viewer.force_login(make_member("viewer@example.org", team, Role.VIEWER))
    assert annotator.get("/tasks/").status_code == 403
    assert viewer.get(f"/tasks/{version.task_id}/").status_code == 200
    assert viewer.get("/tasks/new/").status_code == 403
    assert viewer.post(f"/tasks/{version.task_id}/delete/").status_code == 403


def test_the_palette_finds_a_task(as_owner: Client, team: Team) -> None:
    version = make_task(as_owner)
    assert f"/tasks/{version.task_id}/" in as_owner.get("/palette/?q=sums").content.decode()
