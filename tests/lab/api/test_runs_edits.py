"""Edits of a running run over the API."""

import pytest

from lab.teams.accounts.models import Role, Team, User
from lab.training.runs.launch import launch_run
from lab.training.runs.models import Run, Status
from tests.conftest import make_member
from tests.lab.api.conftest import ApiClient, client_of

RATE = "training.learning_rate"
SPEC = {"task": {"name": "mini_gsm"}, "training": {"trainer": "grpo", "max_steps": 20, "beta": 0.05}, "recipe": "grpo"}


@pytest.fixture
def run(team: Team, owner: User) -> Run:
    run = launch_run(team, owner, SPEC, "a run")
    Run.objects.same_row(run).update(status=Status.RUNNING)
    return run


@pytest.mark.feature(104)
def test_the_api_does_what_the_page_does(api: ApiClient, team: Team, run: Run) -> None:
    path = f"runs/{run.pk}/edits"
    there = api.ask(path).json()
    assert (there["editable"], there["settings"][RATE], there["edits"]) == (True, 3e-4, [])
    assert there["refused"] == {}
    refused = api.send(path, {"changes": {RATE: 3, "training.max_steps": 1}, "reason": "why"})
    assert (refused.status_code, [one["field"] for one in refused.json()["errors"]]) == (422, ["training.max_steps"])
    made = api.send(path, {"changes": {RATE: 1e-5}, "reason": "why"}, **{"Idempotency-Key": "once"})
    again = api.send(path, {"changes": {RATE: 1e-5}, "reason": "why"}, **{"Idempotency-Key": "once"})
    assert (made.status_code, again.status_code, made.json()["id"]) == (201, 200, again.json()["id"])
    assert made.json()["settings"] == [{"name": RATE, "before": 3e-4, "after": 1e-5, "step": None}]
    assert api.send(f"{path}/{made.json()['id']}", method="delete").json()["state"] == "withdrawn"
    assert api.send(f"{path}/{made.json()['id']}", method="delete").status_code == 409
    assert api.send(f"{path}/{made.json()['id']}/fork", {}).status_code == 409
    reader = client_of(team, make_member("reader@example.org", team, Role.RESEARCHER), "runs.read", "runs.launch")
    assert reader.send(path, {"changes": {RATE: 1e-5}, "reason": "why"}).status_code == 403  # a permission of its own
