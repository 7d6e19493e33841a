"""Saved views and invitations over the API: the rules of the pages, and nobody sees or changes another's."""

from __future__ import annotations

import pytest
from django.core import mail
from django.test import Client

from lab.rollouts.browse.models import SavedView
from lab.teams.accounts.models import Invitation, Team, User
from tests.lab.api.conftest import ApiClient


@pytest.mark.feature(80)
def test_a_view_is_saved_once_changed_and_deleted(api: ApiClient, team: Team, owner: User, as_owner: Client) -> None:
    made = api.send("views", {"name": " Wrong  but confident ", "query": "?run=2&nonsense=1", "shared": True})
    assert (made.status_code, made.json()["name"], made.json()["query"]) == (201, "Wrong but confident", "run=2")
    again = api.send("views", {"name": "Wrong but confident", "query": "run=2"})
    assert (again.status_code, again.json()["id"]) == (200, made.json()["id"])
    assert api.send("views", {"name": "Wrong but confident", "query": "run=3"}).status_code == 409
    assert api.send("views", {"name": " "}).status_code == 422
    path = f"views/{made.json()['id']}"
    assert as_owner.get(made.json()["url"].replace("http://testserver", "")).status_code == 302
    changed = api.send(path, {"query": "run=5"}, method="patch").json()
    assert (changed["name"], changed["query"], changed["shared"]) == ("Wrong but confident", "run=5", True)
    api.send("views", {"name": "Other"})
    assert api.send(path, {"name": "Other"}, method="patch").status_code == 409
    assert [view["name"] for view in api.ask("views").json()["items"]] == ["Other", "Wrong but confident"]
    assert api.send(path, None, method="delete").status_code == 204
    assert [view["name"] for view in api.ask("views").json()["items"]] == ["Other"]


def test_anothers_view_is_seen_when_shared_and_never_changed(api: ApiClient, team: Team, teammate: User) -> None:
    shared = SavedView.objects.create(team=team, owner=teammate, name="shared", query="run=1", shared=True)
    SavedView.objects.create(team=team, owner=teammate, name="private", query="run=1")
    assert [view["name"] for view in api.ask("views").json()["items"]] == ["shared"]
    assert api.send(f"views/{shared.pk}", {"name": "mine"}, method="patch").status_code == 404
    assert api.send(f"views/{shared.pk}", None, method="delete").status_code == 404


@pytest.mark.feature(80)
def test_somebody_is_invited_sent_a_new_link_and_uninvited(api: ApiClient, team: Team, owner: User, client: Client) -> None:
    made = api.send("invitations", {"email": "ada@example.org", "role": "annotator"})
    assert (made.status_code, made.json()["role"], made.json()["invited_by"]["email"]) == (201, "annotator", owner.email)
    link = made.json()["link"]
    assert client.get(link.replace("http://testserver", "")).status_code == 200
    assert made.json()["mailed"] == bool(mail.outbox)
    assert api.send("invitations", {"email": "ada@example.org"}).status_code == 409
    assert api.send("invitations", {"email": "nobody"}).json()["errors"][0]["field"] == "email"
    [listed] = api.ask("invitations").json()
    assert (listed["email"], listed["link"]) == ("ada@example.org", "")
    again = api.send(f"invitations/{listed['id']}/resend", {}).json()
    assert again["link"] not in ("", link)
    assert api.send(f"invitations/{listed['id']}", None, method="delete").status_code == 204
    assert api.ask("invitations").json() == []
    assert Invitation.objects.of(team).get().revoked_at is not None
