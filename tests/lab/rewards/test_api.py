"""Reward functions and backtests by the API."""

from __future__ import annotations

from lab.rollouts.backtests import scoring
from lab.teams.accounts.models import Team, User
from lab.training.runs.models import Run
from tests.lab.api.conftest import ApiClient, client_of
from tests.lab.rewards.making import EXACT, LENGTH_CODE
from tests.lab.supervisor.spools import make_run, rollout, started, store


def test_functions_are_created_listed_tried_and_versioned(team: Team, owner: User) -> None:
    api = client_of(team, owner)
    made = api.send("reward-functions", {"name": "exact", "definition": {"kind": "library", "function": "exact-match"}})
    assert made.status_code == 201, made.content
    assert (made.json()["version"], made.json()["definition"]) == (1, EXACT)
    path = f"reward-functions/{made.json()['id']}"
    assert [one["name"] for one in api.ask("reward-functions").json()["items"]] == ["exact"]
    assert api.send(f"{path}/versions", {"definition": EXACT}).status_code == 409
    assert api.send(f"{path}/versions", {"definition": LENGTH_CODE, "note": "longer"}).json()["number"] == 2
    assert [one["number"] for one in api.ask(f"{path}/versions").json()["items"]] == [2, 1]
    assert api.ask(path).json()["definition"] == LENGTH_CODE
    tried = api.send("reward-functions/try", {"definition": LENGTH_CODE, "rows": [{"completion": "abc", "data": {"more": 1}}]}).json()
    assert [score["value"] for score in tried["scores"]] == [4.0]
    wrong = api.send(
        "reward-functions", {"name": "x", "definition": {"kind": "sum", "parts": [{"reward": {"kind": "library", "function": "exact"}}]}}
    )
    assert wrong.status_code == 422
    assert [error["field"] for error in wrong.json()["errors"]] == ["definition.parts.0.reward.function"]


def test_python_needs_a_scope_of_its_own(team: Team, owner: User) -> None:
    api = client_of(team, owner, "rewards.read", "rewards.write")
    assert api.send("reward-functions", {"name": "x", "definition": EXACT}).status_code == 201
    nested = {"kind": "product", "parts": [EXACT, LENGTH_CODE]}
    for path, body in (("reward-functions", {"name": "y"}), ("reward-functions/try", {"rows": [{"completion": "a"}]})):
        assert api.send(path, body | {"definition": nested}).status_code == 403


def test_a_backtest_is_asked_for_and_read(team: Team, owner: User) -> None:
    api: ApiClient = client_of(team, owner)
    run: Run = make_run(team)
    store(run, started(), *(rollout(1, 0, sample, completion="a" * sample, reward=float(-sample)) for sample in range(3)))
    neither = api.send(f"runs/{run.pk}/backtests", {})
    assert neither.status_code == 422
    made = api.send(f"runs/{run.pk}/backtests", {"definition": LENGTH_CODE})
    assert (made.status_code, made.json()["status"], made.json()["summary"]) == (201, "queued", None)
    scoring.run_backtest(made.json()["id"])
    found = api.ask(f"backtests/{made.json()['id']}").json()
    assert (found["status"], found["done"], found["summary"]["flipped_pairs"]) == ("finished", 3, 3)
    assert [flip["sample"] for flip in found["flips"]] == [0, 2]
