"""The inbox, alert rules and webhooks over the API: each person's own, and the team's for those who manage them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from lab.edges.api import tokens
from lab.teams.accounts.models import Team, User
from lab.teams.audit.models import Entry
from lab.watching.alerts import addresses, kinds, signatures
from lab.watching.alerts.models import Delivery, DeliveryState, Notice, Rule, Webhook
from lab.watching.alerts.notices import notify_members
from tests.lab.api.conftest import ApiClient
from tests.lab.supervisor.spools import make_run

VALID = {"kind": "metric", "metric": "reward", "direction": "above", "number": 0.8}


def fields_of(answer: Any) -> list[str]:
    assert answer.status_code == 422, answer.content
    return [one["field"] for one in answer.json()["errors"]]


def tell(team: Team, user: User, count: int) -> list[str]:
    """Subjects, newest first."""
    for number in range(count):
        notify_members(team, kinds.NEWS, f"told {number}", url=f"/t/{team.slug}/runs/", users=[user], key=f"k{number}")
    return [f"told {number}" for number in reversed(range(count))]


def test_the_inbox_is_read_page_by_page_marked_and_taken_back(api: ApiClient, team: Team, owner: User, teammate: User) -> None:
    subjects = tell(team, owner, 3)
    notify_members(team, kinds.NEWS, "of somebody else", url="", users=[teammate], key="other")
    first = api.ask("inbox", limit=2).json()
    second = api.ask("inbox", limit=2, after=first["next"]).json()
    assert [one["subject"] for page in (first, second) for one in page["items"]] == subjects
    assert (first["unread"], second["next"], first["items"][0]["url"].endswith("/t/reasoning/runs/")) == (3, None, True)
    one = first["items"][1]["id"]
    assert api.send(f"inbox/{one}/read", {}).json()["read_at"]
    assert [row["subject"] for row in api.ask("inbox", unread=True).json()["items"]] == [subjects[0], subjects[2]]
    done = api.send("inbox/read").json()
    assert (done["read"], api.ask("inbox").json()["unread"]) == (2, 0)
    for far in ("4089-10-08T05:20:03.778+19:15", "2026-01-31T12:00:00"):  # an offset that PostgreSQL knows not, and none
        assert api.send("inbox/unread", {"at": far}).json() == {"unread": 0}
    assert api.send("inbox/unread", {"at": "0001-01-01T00:00:00+23:00"}).status_code == 422
    assert api.send("inbox/unread", {"at": done["at"]}).json() == {"unread": 2}
    assert api.send(f"inbox/{one}/read", {"read": False}).json()["read_at"] is None
    theirs = Notice.across_teams.get(user=teammate)
    assert api.send(f"inbox/{theirs.pk}/read", {}).status_code == 404
    assert fields_of(api.ask("inbox", after=str(theirs.pk))) == ["after"]
    assert fields_of(api.ask("inbox", kind="nothing")) == ["kind"]


def test_a_rule_of_ones_own_is_made_once_changed_switched_and_deleted(api: ApiClient, team: Team, owner: User) -> None:
    begun = len(api.ask("alerts").json())
    assert begun, "everybody begins with some"
    run = make_run(team)
    made = api.send("alerts", {**VALID, "run": run.number, "email": True})
    again = api.send("alerts", {**VALID, "run": run.number, "email": True})
    assert (made.status_code, again.status_code, again.json()["id"]) == (201, 200, made.json()["id"])
    rule = Rule.across_teams.get(pk=made.json()["id"])
    assert (rule.owner, rule.number, rule.run, rule.mine, rule.created_by) == (owner, 0.8, run, True, owner)
    flat = {"kind": "metric-flat", "metric": "entropy", "band": 0.01, "steps": 50}
    changed = api.send(f"alerts/{rule.pk}", flat, method="put").json()
    assert (changed["band"], changed["steps"], changed["number"], changed["run"]) == (0.01, 50, None, None)
    off = api.send(f"alerts/{rule.pk}/switch", {"enabled": False, "email": True}).json()
    assert (off["enabled"], off["email"]) == (False, True)
    assert fields_of(api.send(f"alerts/{rule.pk}/switch", {})) == ["the body"]
    assert api.send(f"alerts/{rule.pk}", method="delete").status_code == 204
    assert len(api.ask("alerts").json()) == begun
    assert set(Entry.across_teams.filter(action="alert.change").values_list("who", flat=True)) == {owner.email}


def test_what_cannot_be_told_of_names_its_fields(api: ApiClient, as_role: Callable[[str], ApiClient]) -> None:
    assert fields_of(api.send("alerts", {**VALID, "metric": "", "number": None, "run": 99})) == ["run", "metric", "number"]
    assert fields_of(api.send("alerts", {"kind": "webhook"})) == ["kind"]
    assert fields_of(api.send("alerts", {**VALID, "inbox": False})) == ["inbox"]
    assert fields_of(api.send("alerts", {**VALID, "webhook": 1})) == ["webhook"]
    names = {role: {one["name"] for one in as_role(role).ask("alerts/kinds").json()} for role in ("viewer", "annotator", "admin")}
    assert names["annotator"] == {"queue-due"}
    assert "promotion" in names["admin"] - names["viewer"]


def test_rules_and_webhooks_of_the_team_are_for_who_manages_them(
    api: ApiClient, team: Team, owner: User, as_role: Callable[[str], ApiClient]
) -> None:
    made = api.send("webhooks", {"name": "ours", "url": "https://hooks.example.org/lab"})
    assert made.status_code == 201, made.content
    hook = Webhook.across_teams.get(pk=made.json()["id"])
    assert signatures.secrets_of(hook) == [made.json()["secret"]]
    assert "secret" not in api.ask("webhooks").json()[0]
    fresh = api.send(f"webhooks/{hook.pk}/secret").json()["secret"]
    hook.refresh_from_db()
    assert signatures.secrets_of(hook) == [fresh, made.json()["secret"]]
    assert fields_of(api.send("webhooks", {"name": " ", "url": "http://127.0.0.1/"})) == ["name", "url"]
    _, service = tokens.create_access_token(team, None, "bot", ["alerts.manage"], None, role="admin", by=owner)
    rule = ApiClient(service).send("alerts/team", {**VALID, "webhook": hook.pk, "inbox": False}).json()
    assert (rule["webhook"], Rule.across_teams.get(pk=rule["id"]).owner) == (hook.pk, None)
    assert api.send(f"alerts/{rule['id']}", VALID, method="put").status_code == 404
    assert api.send(f"alerts/team/{rule['id']}", {**VALID, "number": 0.9}, method="put").json()["number"] == 0.9
    assert api.ask("webhooks").json()[0]["rules"] == 0
    off = api.send(f"webhooks/{hook.pk}", {"name": "theirs", "enabled": False}, method="put").json()
    assert (off["name"], off["enabled"]) == ("theirs", False)
    for role in ("annotator", "researcher"):
        client = as_role(role)
        for path in ("alerts/team", "webhooks", "deliveries"):
            assert client.ask(path).status_code == 403, (role, path)
    assert api.send(f"webhooks/{hook.pk}", method="delete").status_code == 204
    assert api.send(f"alerts/team/{rule['id']}", method="delete").status_code == 204
    assert not Rule.across_teams.filter(owner=None).exists()


def test_what_was_sent_is_listed_and_sent_again(api: ApiClient, team: Team) -> None:
    hook = Webhook.objects.create(
        team=team, name="ours", **addresses.build_address_fields("https://192.0.2.1/"), secret=signatures.seal_webhook_secret("whsec")
    )
    tested = api.send(f"webhooks/{hook.pk}/test").json()
    assert (tested["state"], bool(tested["problem"]), tested["to"]) == ("failed", True, "ours")
    for number in range(2):
        Delivery.objects.create(team=team, webhook=hook, key=f"k{number}", event={"subject": f"told {number}"}, state=DeliveryState.FAILED)
    first = api.ask("deliveries", limit=2, state="failed", webhook=hook.pk).json()
    second = api.ask("deliveries", limit=2, state="failed", webhook=hook.pk, after=first["next"]).json()
    assert [one["subject"] for page in (first, second) for one in page["items"]] == ["told 1", "told 0", "Test of this webhook"]
    again = api.send(f"deliveries/{first['items'][0]['id']}/again")
    assert again.json()["state"] == "waiting"
    assert api.send(f"deliveries/{first['items'][0]['id']}/again").status_code == 409


@pytest.mark.parametrize(("method", "path"), [("get", "inbox"), ("get", "alerts"), ("post", "inbox/read"), ("post", "alerts")])
def test_a_service_token_has_no_inbox_and_no_rules_of_its_own(team: Team, owner: User, method: str, path: str) -> None:
    _, secret = tokens.create_access_token(team, None, "bot", ["lab.enter", "alerts.rules"], None, role="admin", by=owner)
    client = ApiClient(secret)
    answer = client.ask(path) if method == "get" else client.send(path, VALID if path == "alerts" else {})
    assert (answer.status_code, answer.json()["type"]) == (403, "/api/#person")
