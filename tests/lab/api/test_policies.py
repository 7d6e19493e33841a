"""Policies over the API: the list, one with its files, its archive, aliases behind their gates, and what is kept."""

from __future__ import annotations

import io
import json
import tarfile
from typing import Any

import pytest

from lab.models.policies.models import Alias, Gate, Proposal, Removal
from lab.teams.accounts.models import Role, Team, User
from lab.teams.audit.models import Entry
from lab.training.runs.models import Run
from tests.conftest import make_member
from tests.lab.api.conftest import ApiClient, client_of
from tests.lab.policies.making import at, final_of, matched, trained, vote


@pytest.fixture
def run(team: Team, teammate: User) -> Run:
    return trained(team, teammate)


@pytest.fixture
def admin(team: Team) -> ApiClient:
    return client_of(team, make_member("admin@example.org", team, Role.ADMIN))


@pytest.fixture
def researcher(team: Team, teammate: User) -> ApiClient:
    return client_of(team, teammate)


def test_the_list_is_that_of_the_page_page_by_page(api: ApiClient, team: Team, run: Run) -> None:
    other = trained(team, None, name="other")
    first = api.ask("policies", limit=2).json()
    second = api.ask("policies", limit=2, after=first["next"]).json()
    newest = [one["id"] for one in [*first["items"], *second["items"]]]
    assert newest == [final_of(other).pk, at(other, 50).pk, final_of(run).pk, at(run, 50).pk]
    assert second["next"] is None
    assert len(api.ask("policies", twins=True).json()["items"]) == 6
    [final] = api.ask("policies", run=run.number, kind="final").json()["items"]
    assert (final["measured"]["reward"], final["run"]["number"], final["there"]) == ({"value": 1.0, "step": 100}, run.number, True)
    assert api.ask("policies", alias="candidate").json()["items"] == []
    assert api.ask("policies", after=10**9).status_code == 422


def test_one_policy_with_its_files_and_the_archive(api: ApiClient, run: Run) -> None:
    one = final_of(run)
    detail = api.ask(f"policies/{one.pk}").json()
    assert detail["metrics"]["entropy"] == {"value": 1.5, "step": 100}
    assert detail["config"]["model_type"] == "llama"
    files = {file["name"]: file for file in api.ask(f"policies/{at(run, 50).pk}/files").json()}
    assert len(files["model.safetensors"]["sha256"]) == 64
    assert (files["optimizer.pt"]["of_policy"], files["optimizer.pt"]["sha256"]) == (False, "")
    answer = api.ask(f"policies/{one.pk}/download")
    with tarfile.open(fileobj=io.BytesIO(b"".join(answer.streaming_content))) as archive:
        names = {name.split("/")[1] for name in archive.getnames()}
    assert {"model.safetensors", "config.json", "SHA256SUMS"} <= names
    assert Entry.across_teams.get(action="policy.download").token.startswith("lab_")
    for file in one.run.folder.joinpath("final").iterdir():
        file.unlink()
    assert api.ask(f"policies/{one.pk}/download").json()["type"] == "/api/#missing"


def test_a_promotion_is_asked_for_waits_for_its_gate_and_is_approved_by_a_second_person(
    team: Team, teammate: User, researcher: ApiClient, admin: ApiClient
) -> None:
    run, match = matched(team, teammate, prompts=24)
    one = final_of(run)
    needed = {row["name"]: row["met"] for row in researcher.ask(f"policies/{one.pk}/gate").json()}
    assert needed == {"weights": True, "votes": False, "low": False, "complete": False, "recalls": True, "unsafe": True, "second": None}
    asked = researcher.send(f"policies/{one.pk}/proposals", {"alias": "Production", "reason": "best"}, **{"Idempotency-Key": "a"})
    again = researcher.send(f"policies/{one.pk}/proposals", {"alias": "Production", "reason": "best"}, **{"Idempotency-Key": "a"})
    assert (asked.status_code, again.status_code, again.json()["id"]) == (201, 200, asked.json()["id"])
    assert researcher.send(f"policies/{one.pk}/proposals", {"alias": "production"}).status_code == 409
    path = f"proposals/{asked.json()['id']}"
    assert researcher.send(f"{path}/approve").status_code == 403
    early = admin.send(f"{path}/approve")
    assert (early.status_code, [row["field"] for row in early.json()["errors"]]) == (409, ["gate.votes", "gate.low", "gate.complete"])
    vote(match, teammate, 20, 4)
    done = admin.send(f"{path}/approve", {"comment": "well done"}).json()
    assert (done["state"], done["comment"], all(row["met"] for row in done["conditions"])) == ("approved", "well done", True)
    [alias] = [row for row in admin.ask("aliases").json() if row["name"] == "production"]
    assert (alias["policy"], alias["gate"]["votes"], alias["moves"][0]["label"]) == (one.pk, 20, done["label"])
    [held] = admin.ask("policies", alias="production").json()["items"]
    assert (held["aliases"], held["votes"]["votes"], held["votes"]["rate"]["value"]) == (["production"], 24, pytest.approx(20 / 24))
    assert [row["id"] for row in admin.ask("proposals", state="approved").json()["items"]] == [done["id"]]


def test_proposals_are_refused_with_a_reason_or_withdrawn(team: Team, run: Run, researcher: ApiClient, admin: ApiClient) -> None:
    one = final_of(run)
    first = researcher.send(f"policies/{one.pk}/proposals", {"alias": "candidate"}).json()
    assert admin.send(f"proposals/{first['id']}/refuse", {"comment": ""}).json()["errors"][0]["field"] == "comment"
    assert admin.send(f"proposals/{first['id']}/refuse", {"comment": "not yet"}).json()["state"] == "refused"
    second = researcher.send(f"policies/{one.pk}/proposals", {"alias": "candidate"}).json()
    assert researcher.send(f"proposals/{second['id']}/withdraw").json()["state"] == "withdrawn"
    assert researcher.send(f"proposals/{second['id']}/withdraw").status_code == 409
    wrong = researcher.send(f"policies/{one.pk}/proposals", {"alias": "No name!"})
    assert (wrong.status_code, wrong.json()["errors"][0]["field"]) == (422, "alias")
    assert Proposal.across_teams.count() == 2


def test_aliases_are_given_rolled_back_cleared_and_gated_by_admins(team: Team, run: Run, researcher: ApiClient, admin: ApiClient) -> None:
    one, other = final_of(run), at(run, 50)
    assert researcher.send(f"policies/{one.pk}/aliases", {"alias": "candidate"}).status_code == 403
    given = admin.send(f"policies/{one.pk}/aliases", {"alias": "candidate", "comment": "first"}).json()
    assert (given["policy"], given["gate"]["votes"], given["gate"]["no_unsafe"]) == (one.pk, 0, True)
    admin.send(f"policies/{other.pk}/aliases", {"alias": "candidate"})
    back = admin.send(f"aliases/{given['id']}/back", {"comment": "worse"}).json()
    assert (back["policy"], back["moves"][0]["back"], back["moves"][0]["comment"]) == (one.pk, True, "worse")
    assert admin.send(f"aliases/{given['id']}/clear").json()["policy"] is None
    gate = admin.send("aliases/candidate/gate", {"votes": 5, "second_reviewer": False}, method="put").json()["gate"]
    assert (gate["votes"], gate["second_reviewer"], gate["complete"]) == (5, False, True)
    assert admin.send(f"policies/{one.pk}/aliases", {"alias": "candidate"}).status_code == 409
    assert admin.send("aliases/candidate/gate", {"low": 1.0}, method="put").json()["errors"][0]["field"] == "low"
    assert admin.send("aliases/candidate/gate", method="delete").json()["gate"] is None
    assert not Gate.across_teams.exists()
    assert Alias.across_teams.get().checkpoint is None


def test_a_policy_is_deleted_after_a_while_unless_it_is_kept_or_relied_on(run: Run, researcher: ApiClient, admin: ApiClient) -> None:
    one = at(run, 50)
    assert researcher.send(f"policies/{one.pk}", method="delete").status_code == 403
    asked = admin.send(f"policies/{one.pk}", method="delete").json()
    assert (asked["there"], asked["removal"]["kept_at"]) == (True, None)
    assert admin.send(f"policies/{one.pk}/keep").json()["removal"]["kept_at"]
    assert admin.send(f"policies/{one.pk}/keep").status_code == 409
    admin.send(f"policies/{one.pk}/aliases", {"alias": "candidate"})
    refused = admin.send(f"policies/{one.pk}", method="delete")
    assert (refused.status_code, "alias candidate" in refused.json()["detail"]) == (409, True)
    assert Removal.across_teams.get().kept_at is not None


def test_the_rules_of_what_is_kept_are_looked_at_before_they_are_in_force(run: Run, researcher: ApiClient, admin: ApiClient) -> None:
    assert researcher.ask("retention").json()["rules"]["active"] is False
    rules: dict[str, Any] = {"keep_last": 1, "keep_best": 0, "after_hours": 0, "active": True}
    plan = researcher.send("retention/preview", rules).json()
    assert [one["policy"] for one in plan["drop"]] == [at(run, 50).pk]
    assert plan["freed"] == at(run, 50).bytes
    assert researcher.send("retention", rules, method="put").status_code == 403
    saved = admin.send("retention", rules, method="put").json()
    assert (saved["rules"]["keep_last"], saved["rules"]["active"]) == (1, True)
    wrong = admin.send("retention", {**rules, "keep_last": 0}, method="put")
    assert json.loads(wrong.content)["errors"][0]["field"] == "keep_last"
