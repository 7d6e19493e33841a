"""Names, notes, tags and the archive of runs over the API, and one act on several of them."""

from __future__ import annotations

from typing import Any

import pytest

from lab.teams.accounts.models import Team, User
from lab.teams.audit.models import Entry
from lab.training.runs.models import Run, Status
from tests.lab.api.conftest import ApiClient


@pytest.fixture
def runs(team: Team) -> list[Run]:
    given: dict[str, Any] = {"team": team, "spec": {}, "recipe": "r", "trainer": "sft", "task": "t", "policy": "p"}
    states = (Status.FINISHED, Status.RUNNING, Status.STOPPED)
    return [Run.objects.create(number=number, name=f"run {number}", status=status, **given) for number, status in enumerate(states, start=1)]


def change(api: ApiClient, run: Run, **body: Any) -> Any:
    return api.send(f"runs/{run.pk}", body, method="patch")


def test_a_run_is_renamed_noted_tagged_and_archived(api: ApiClient, runs: list[Run]) -> None:
    changed = change(api, runs[0], name="better", notes="why", tags=["a", "A", "b"], archived=True).json()
    assert (changed["name"], changed["notes"], changed["tags"], changed["archived_at"] is None) == ("better", "why", ["a", "b"], False)
    again = change(api, runs[0], name="best").json()
    assert (again["notes"], again["tags"]) == ("why", ["a", "b"])  # what is left out stays
    assert [one["number"] for one in api.ask("runs").json()["items"]] == [3, 2]
    assert [one["number"] for one in api.ask("runs", archived="1", tag="a").json()["items"]] == [1]
    assert [one["number"] for one in api.ask("runs", archived="any").json()["items"]] == [3, 2, 1]
    assert change(api, runs[0], archived=False).json()["archived_at"] is None
    assert {one.via for one in Entry.across_teams.filter(action__startswith="run.")} == {"api"}


def test_what_cannot_be_changed_names_its_field_and_changes_nothing(api: ApiClient, runs: list[Run]) -> None:
    for body, fields in (
        ({"name": " ", "tags": ["x" * 31]}, {"name", "tags"}),
        ({"name": "x" * 101}, {"name"}),
        ({"notes": "n" * 10_001}, {"notes"}),
        ({"spec": {}}, {"spec"}),
    ):
        response = change(api, runs[0], **body)
        assert (response.status_code, {one["field"] for one in response.json()["errors"]}) == (422, fields), body
    open_run = change(api, runs[1], name="not kept", archived=True)
    assert (open_run.status_code, open_run.json()["detail"]) == (409, "Nothing was changed: run #2 is running, stop it first.")
    assert list(Run.across_teams.order_by("number").values_list("name", flat=True)) == ["run 1", "run 2", "run 3"]
    assert api.ask("runs", archived="maybe").status_code == 422


def test_one_act_on_several_runs(api: ApiClient, runs: list[Run]) -> None:
    answer = api.send("runs/act", {"act": "archive", "runs": [1, 2, 3, 77]}).json()
    assert answer == {"changed": [1, 3], "unchanged": [{"run": 2, "reason": "running, stop it first"}, {"run": 77, "reason": "not found"}]}
    assert api.send("runs/act", {"act": "tag", "runs": [1, 2], "tag": "night"}).json()["changed"] == [1, 2]
    assert api.send("runs/act", {"act": "untag", "runs": [1, 2, 3], "tag": "Night"}).json()["changed"] == [1, 2]
    assert api.send("runs/act", {"act": "stop", "runs": [2]}).json()["changed"] == [2]
    for body, field in (
        ({"act": "tag", "runs": [1]}, "tag"),
        ({"act": "stop", "runs": [1], "tag": "x"}, "tag"),
        ({"act": "stop", "runs": []}, "runs"),
    ):
        response = api.send("runs/act", body)
        assert (response.status_code, [one["field"] for one in response.json()["errors"]]) == (422, [field]), body


def test_runs_of_another_team_are_not_found(api: ApiClient, runs: list[Run], stranger: User) -> None:
    theirs = stranger.memberships.get().team
    Run.across_teams.update(team=theirs)
    assert change(api, runs[0], name="mine").status_code == 404
    assert api.send("runs/act", {"act": "archive", "runs": [1]}).status_code == 404
    assert Run.across_teams.filter(team=theirs, archived_at=None, name="run 1").exists()
