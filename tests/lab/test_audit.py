"""The audit log: it cannot be rewritten, and signing in and out leaves entries without secrets."""

import json

import pytest
from django.core.management import call_command
from django.db import DatabaseError, connection, transaction
from django.test import Client
from django.urls import reverse

from lab.teams.accounts.models import Membership, Team, User
from lab.teams.audit.models import Entry, RequestChannel
from lab.teams.audit.recording import record_audit_entry
from lab.training.runs.launch import launch_recipe
from lab.training.runs.models import Run, Status

PASSWORD = "correct horse battery"


def of(action: str) -> list[Entry]:
    return list(Entry.across_teams.filter(action=action).order_by("id"))


def sign_in(client: Client, email: str, password: str) -> None:
    client.post("/accounts/login/", {"login": email, "password": password}, headers={"User-Agent": "Firefox"})


@pytest.mark.parametrize(
    "rewrite",
    [
        "UPDATE audit_entry SET who = 'somebody else'",
        "DELETE FROM audit_entry",
        "UPDATE audit_entry SET details = '{}' WHERE id < 0",
    ],
)
def test_the_database_refuses_to_change_or_delete_an_entry(team: Team, rewrite: str) -> None:
    record_audit_entry("team.change", team, name="New")
    with pytest.raises(DatabaseError, match="append-only"), transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(rewrite)
    assert Entry.across_teams.count() == 1


def test_entries_outlive_the_team_and_the_person(team: Team, owner: User) -> None:
    record_audit_entry("team.change", team, actor=owner)
    team.delete()
    owner.delete()
    entry = Entry.across_teams.get(action="team.change")
    assert (entry.who, entry.label) == ("owner@example.org", "Reasoning")


def test_an_act_that_is_rolled_back_is_not_logged(team: Team) -> None:
    with transaction.atomic():
        record_audit_entry("team.change", team)
        transaction.set_rollback(True)
    assert not Entry.across_teams.exists()


def test_signing_in_and_out_is_told_to_every_team_of_the_person(client: Client, team: Team, owner: User) -> None:
    other = Team.objects.create(name="Other", slug="other")
    Membership.objects.create(team=other, user=owner)
    Membership.objects.create(team=Team.objects.create(name="Left", slug="left"), user=owner, active=False)
    sign_in(client, "owner@example.org", PASSWORD)
    client.post("/accounts/logout/")
    for action in ("session.start", "session.end"):
        assert [entry.team_id for entry in of(action)] == [None, team.pk, other.pk], action
    entry = of("session.start")[1]
    assert (entry.who, entry.via, entry.address, entry.agent) == ("owner@example.org", RequestChannel.BROWSER, "127.0.0.1", "Firefox")


def test_a_sign_in_that_fails_keeps_the_address_and_no_password(client: Client, team: Team, owner: User) -> None:
    for email in ("owner@example.org", "nobody@example.org", "nul\0@example.org"):
        sign_in(client, email, "wrong-secret-1234")
    known = [entry for entry in of("session.fail") if entry.label == "owner@example.org"]
    assert [entry.team_id for entry in known] == [None, team.pk]
    assert [entry.team_id for entry in of("session.fail") if entry.label == "nobody@example.org"] == [None]
    assert all(entry.actor is None for entry in of("session.fail"))
    assert "wrong-secret" not in json.dumps([str(vars(entry)) for entry in Entry.across_teams.all()])


def test_changing_the_password_is_logged(client: Client, owner: User) -> None:
    sign_in(client, "owner@example.org", PASSWORD)
    data = {"oldpassword": PASSWORD, "password1": "another horse battery 9", "password2": "another horse battery 9"}
    client.post("/accounts/password/change/", data)
    assert {entry.who for entry in of("password.change")} == {"owner@example.org"}


def test_the_command_line_is_another_way_than_the_browser_and_the_worker(as_owner: Client, team: Team, owner: User) -> None:
    call_command("launch", "grpo", user="owner@example.org")
    [run] = launch_recipe(team, None, "grpo")
    run.request_stop()
    as_owner.post(reverse("run-resume", args=[run.pk]))
    said = [(entry.action, entry.via, entry.who) for entry in Entry.across_teams.filter(kind="run").order_by("id")]
    assert said == [
        ("run.launch", "command", "owner@example.org"),
        ("run.launch", "worker", ""),
        ("run.stop", "worker", ""),
        ("run.resume", "browser", "owner@example.org"),
    ]


def test_what_changes_nothing_leaves_no_entry(as_owner: Client, team: Team, owner: User) -> None:
    [run] = launch_recipe(team, owner, "grpo")
    Run.across_teams.filter(pk=run.pk).update(status=Status.FINISHED)
    for name in ("run-stop", "run-kill", "run-resume"):
        as_owner.post(reverse(name, args=[run.pk]))
    assert [entry.action for entry in Entry.across_teams.filter(kind="run")] == ["run.launch"]


def test_killing_is_told_from_stopping(as_owner: Client, team: Team, owner: User) -> None:
    [run] = launch_recipe(team, owner, "grpo")
    run.claim("worker/1")
    for name in ("run-stop", "run-kill"):
        as_owner.post(reverse(name, args=[run.pk]))
    assert [entry.action for entry in Entry.across_teams.filter(kind="run").order_by("id")] == ["run.launch", "run.stop", "run.kill"]
