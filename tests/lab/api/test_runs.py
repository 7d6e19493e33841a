"""Runs over the API: what a list shows, launching with problems that name their field, and verbs that say when nothing was changed."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import pytest

from lab.edges.api import tokens
from lab.teams.accounts.models import Team, User
from lab.teams.audit.models import Entry
from lab.training.runs.launch import launch_recipe
from lab.training.runs.models import Run, Status
from tests.lab.api.conftest import ApiClient
from tests.lab.supervisor.spools import started, store
from tests.lab.test_environment import COMMIT, recorded

QUICK = {"check": False, "recipe": "grpo"}


def test_runs_come_in_pages_by_key(api: ApiClient, team: Team, owner: User) -> None:
    for number in range(3):
        launch_recipe(team, owner, "grpo", name=f"run {number}")
    first = api.ask("runs", limit=2).json()
    assert [run["number"] for run in first["items"]] == [3, 2]
    launch_recipe(team, owner, "grpo", name="meanwhile")
    second = api.ask("runs", limit=2, after=first["next"]).json()
    assert ([run["number"] for run in second["items"]], second["next"]) == ([1], None)
    assert first["items"][0]["created_by"]["email"] == owner.email
    assert "/t/reasoning/runs/" in first["items"][0]["url"]
    assert api.ask("runs", status="ended").json()["items"] == []
    assert api.ask("runs", q="meanwhile").json()["items"][0]["number"] == 4


@pytest.mark.parametrize(
    ("query", "field"), [({"status": "odd"}, "status"), ({"after": "x"}, "after"), ({"limit": 0}, "limit"), ({"who": "me"}, "who")]
)
def test_what_a_list_cannot_do_names_the_parameter(query: dict[str, Any], field: str, api: ApiClient) -> None:
    response = api.ask("runs", **query)
    assert (response.status_code, [one["field"] for one in response.json()["errors"]]) == (422, [field])


def test_a_recipe_is_launched_as_the_browser_does(api: ApiClient, owner: User) -> None:
    response = api.send("runs", {**QUICK, "name": "mine", "overrides": {"training": {"max_steps": 7}}})
    assert response.status_code == 201, response.content
    [made] = response.json()["runs"]
    run = Run.across_teams.get()
    assert (made["id"], made["name"], made["total_steps"], made["status"]) == (str(run.pk), "mine", 7, "queued")
    assert run.created_by == owner
    assert [(one.via, one.actor_id) for one in Entry.across_teams.filter(action="run.launch")] == [("api", owner.pk)]
    spec = api.ask(f"runs/{run.pk}").json()["spec"]
    assert "output" not in spec
    assert spec["training"]["max_steps"] == 7
    again = api.send("runs", {"spec": spec, "check": False})
    assert again.status_code == 201, again.content


def test_problems_of_a_launch_have_the_path_in_the_body(api: ApiClient) -> None:
    wrong = {"training": {"max_steps": 0, "learning_rate": "fast"}, "odd": 1}
    response = api.send("runs", {**QUICK, "overrides": wrong})
    fields = {one["field"] for one in response.json()["errors"]}
    assert response.status_code == 422
    assert fields == {"overrides.training.max_steps", "overrides.training.learning_rate", "overrides.odd"}
    for body, field in (
        ({"check": False}, "recipe"),
        ({"recipe": "grpo", "spec": {}}, "recipe"),
        ({"recipe": "no such"}, "recipe"),
        ({"spec": {}, "overrides": {"a": 1}}, "overrides"),
        ({"recipe": "grpo", "after": str(uuid.uuid4())}, "after"),
        ({"recipe": "grpo", "odd": 1}, "odd"),
        ({"recipe": "grpo", "name": "a\0b"}, "name"),
        ({"recipe": "grpo", "name": "\ud800"}, "name"),
        ({"recipe": "grpo", "overrides": {"policy": {"kind": "folder", "path": "/etc"}}, "check": False}, "overrides.policy.path"),
    ):
        response = api.send("runs", body)
        assert (response.status_code, [one["field"] for one in response.json()["errors"]]) == (422, [field]), body
    assert Run.across_teams.count() == 0


def test_the_trainers_check_is_asked_and_its_findings_have_paths(api: ApiClient) -> None:
    wrong = {"task": {"name": "mini_gsm", "config": {}}, "training": {"max_completion_length": 100_000}}
    response = api.send("runs/check", {"recipe": "grpo", "overrides": wrong})
    assert response.status_code == 422, response.content
    assert all(one["field"].startswith("overrides.") for one in response.json()["errors"])
    assert Run.across_teams.count() == 0


def test_a_launch_with_a_key_is_done_once(api: ApiClient) -> None:
    key = {"Idempotency-Key": "one"}
    first, second = api.send("runs", QUICK, **key), api.send("runs", QUICK, **key)
    assert (first.status_code, second.status_code) == (201, 200)
    assert first.json()["runs"][0]["id"] == second.json()["runs"][0]["id"]
    assert (first.json()["fresh"], second.json()["fresh"]) == (True, False)
    other = api.send("runs", {**QUICK, "name": "other"}, **key)
    assert other.status_code == 409
    assert Run.across_teams.count() == 1
    assert api.send("runs", {**QUICK, "overrides": {"odd": 1}}, **{"Idempotency-Key": "two"}).status_code == 422
    assert api.send("runs", QUICK, **{"Idempotency-Key": "two"}).status_code == 201, "a refused request does not use its key up"


def test_verbs_change_once_and_say_so(api: ApiClient, team: Team, owner: User) -> None:
    [run] = launch_recipe(team, owner, "grpo")
    stopped = api.send(f"runs/{run.pk}/stop")
    assert (stopped.status_code, stopped.json()["status"], stopped.json()["can"]["resume"]) == (200, "stopped", True)
    again = api.send(f"runs/{run.pk}/stop")
    assert again.status_code == 409
    assert "stopped" in again.json()["detail"]
    assert api.send(f"runs/{run.pk}/kill").status_code == 409
    assert api.send(f"runs/{run.pk}/resume").json()["status"] == "queued"
    clone = api.send(f"runs/{run.pk}/clone", {"check": False, "overrides": {"training": {"max_steps": 300}}})
    assert clone.status_code == 201, clone.content
    assert Run.across_teams.get(pk=clone.json()["runs"][0]["id"]).cloned_from == run


def test_a_service_token_launches_for_nobody(team: Team, owner: User) -> None:
    _, secret = tokens.create_access_token(team, None, "nightly", ["runs.launch", "runs.read"], None, role="researcher", by=owner)
    response = ApiClient(secret).send("runs", QUICK)
    assert response.status_code == 201, response.content
    assert response.json()["runs"][0]["created_by"] is None
    assert Entry.across_teams.get(action="run.launch").who == "service token nightly"


def test_another_teams_run_is_not_found(as_role: Callable[[str], ApiClient], stranger: User) -> None:
    [theirs] = launch_recipe(stranger.memberships.get().team, stranger, "grpo")
    client = as_role("researcher")
    for path in ("", "/metrics", "/series?name=reward", "/steps", "/groups?step=1"):
        response = client.ask(f"runs/{theirs.pk}{path}")
        assert (response.status_code, response.headers["Content-Type"]) == (404, "application/problem+json"), path
    for verb in ("stop", "kill", "resume", "clone"):
        assert client.send(f"runs/{theirs.pk}/{verb}").status_code == 404
    assert client.send("runs", {"spec": {}, "after": str(theirs.pk)}).status_code == 422
    theirs.refresh_from_db()
    assert theirs.status == Status.QUEUED


def test_everything_unknown_is_a_problem_and_not_a_page(api: ApiClient, owner: User) -> None:
    for path, status in (("nothing", 404), ("", 404), ("runs/17", 404), (f"runs/{uuid.uuid4()}", 404), (f"rollouts/{10**30}", 404)):
        response = api.ask(path)
        assert (response.status_code, response.headers["Content-Type"]) == (status, "application/problem+json"), path
        assert response.json()["request"] == response.headers["X-Request-Id"]
    assert api.send("me").status_code == 405
    assert api.send("me").headers["Allow"] == "GET"
    assert api.post("/api/v1/runs", {"recipe": "grpo"}).status_code == 400, "a form is not JSON"
    assert api.post("/api/v1/runs", "{", content_type="application/json").status_code == 400
    assert api.post("/api/v1/runs", "[" * 100_000, content_type="application/json").status_code == 400
    assert api.post("/api/v1/runs", "x" * 3_000_000, content_type="application/json").status_code == 413
    assert api.get("/t/reasoning/api/v1/me").status_code == 404
    assert api.ask("me").headers.get("Access-Control-Allow-Origin") is None


def test_attempts_say_what_they_ran_in(api: ApiClient, team: Team) -> None:
    run = recorded(team)
    store(run, started(2))
    first, second = api.ask(f"runs/{run.pk}/attempts").json()
    assert first["environment"]["code"]["commit"] == COMMIT
    assert (first["inputs"]["rows"], first["inputs"]["sha256"]) == (600, "c" * 64)
    assert {package["name"]: package["version"] for package in first["packages"]}["torch"] == "2.13.0"
    assert (second["attempt"], second["environment"], second["inputs"], second["packages"]) == (2, None, None, None)
