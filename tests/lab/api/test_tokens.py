"""Access tokens: stored as a hash, refused in time, never more than scope and role."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
import redis
from django.test import Client
from django.utils import timezone

from lab.edges.api import limits, tokens
from lab.teams.accounts.models import ApiToken, Membership, Role, Team, User
from lab.teams.audit.models import Entry
from tests.conftest import make_member
from tests.lab.api.conftest import ApiClient, client_of


def refused(secret: str) -> str:
    response = ApiClient(secret).ask("me")
    assert response.status_code == 401, response.content
    assert response.headers["Content-Type"] == "application/problem+json"
    assert response.headers["WWW-Authenticate"].startswith("Bearer")
    return str(response.json()["detail"])


def test_a_token_says_who_asks_and_is_not_stored(team: Team, owner: User) -> None:
    token, secret = tokens.create_access_token(team, owner, "notebook", ["runs.read"], None)
    answer = ApiClient(secret).ask("me").json()
    assert (answer["user"]["email"], answer["team"]["slug"], answer["role"], answer["may"]) == (owner.email, "reasoning", "owner", ["runs.read"])
    assert secret.startswith(f"{token.prefix}_")
    assert len(secret) == len(token.prefix) + 41
    stored = str(ApiToken.across_teams.values().get())
    assert secret not in stored
    assert secret[-40:] not in stored


def test_a_service_token_acts_with_its_role_for_nobody(team: Team, owner: User) -> None:
    _, secret = tokens.create_access_token(team, None, "nightly", ["runs.read", "members.read"], None, role="researcher", by=owner)
    answer = ApiClient(secret).ask("me").json()
    assert answer["user"] is None
    assert answer["role"] == "researcher"
    with pytest.raises(ValueError, match="service token acts as"):
        tokens.create_access_token(team, None, "too much", ["runs.read"], None, role="owner")


def test_a_token_gets_no_scope_its_role_lacks(team: Team) -> None:
    viewer = make_member("viewer@example.org", team, Role.VIEWER)
    for scope in ("runs.launch", "no.such", ""):
        with pytest.raises(ValueError, match="has no scope"):
            tokens.create_access_token(team, viewer, "greedy", [scope], None)


def test_revoked_expired_unknown_and_mangled_tokens_are_refused(team: Team, owner: User) -> None:
    token, secret = tokens.create_access_token(team, owner, "gone", [], None)
    assert tokens.revoke_access_token(token, owner)
    assert not tokens.revoke_access_token(token, owner)
    assert "revoked" in refused(secret)
    _, late = tokens.create_access_token(team, owner, "late", [], timezone.now() - timedelta(seconds=1))
    assert "expired" in refused(late)
    _, good = tokens.create_access_token(team, owner, "good", [], None)
    for wrong in (good[:-1], good[:-1] + ("a" if good[-1] != "a" else "b"), good.upper(), "lab_", "é" * 53, good + " ", "' OR 1=1 --"):
        if wrong.strip() != good:
            assert tokens.find_usable_token(wrong) is None
    assert "Unknown access token" in refused(good[:-2] + "__")
    assert tokens.find_usable_token(good) is not None


def test_no_token_or_another_scheme_is_refused(client: Client, owner: User) -> None:
    client.force_login(owner)  # a cookie opens nothing here
    for headers in ({}, {"Authorization": "Basic abc"}, {"Authorization": "Bearer"}, {"Authorization": "Bearer  "}):
        response = client.get("/api/v1/me", headers=headers)
        assert response.status_code == 401
        assert "WWW-Authenticate" in response.headers


def test_deactivation_of_member_or_person_ends_the_token(team: Team, teammate: User) -> None:
    _, secret = tokens.create_access_token(team, teammate, "mine", ["runs.read"], None)
    Membership.objects.filter(user=teammate).update(active=False)
    said = refused(secret)
    assert teammate.email not in said
    assert team.name not in said
    Membership.objects.filter(user=teammate).update(active=True)
    User.objects.filter(pk=teammate.pk).update(is_active=False)
    assert "not an active member" in refused(secret)


def test_a_team_that_asks_for_a_second_factor_refuses_tokens_of_people_without(team: Team, owner: User) -> None:
    _, secret = tokens.create_access_token(team, owner, "mine", [], None)
    _, service = tokens.create_access_token(team, None, "service", [], None, role="viewer", by=owner)
    Team.objects.filter(pk=team.pk).update(requires_mfa=True)
    assert "second factor" in refused(secret)
    assert ApiClient(service).ask("me").status_code == 200


@pytest.mark.feature(78)
def test_scope_and_role_are_both_needed(team: Team, teammate: User) -> None:
    narrow = client_of(team, teammate, "runs.read")
    response = narrow.ask("members")
    assert response.status_code == 403
    assert "scope members.read" in response.json()["detail"]
    wide = client_of(team, teammate, "runs.read", "members.read")
    assert wide.ask("members").status_code == 200
    Membership.objects.filter(user=teammate).update(role=Role.ANNOTATOR)
    response = wide.ask("members")
    assert response.status_code == 403
    assert "your role is annotator" in response.json()["detail"]


def test_the_last_use_is_written_once_a_minute_and_audited_once_an_hour(team: Team, owner: User) -> None:
    token, secret = tokens.create_access_token(team, owner, "mine", [], None)
    client = ApiClient(secret)
    client.ask("me")
    first = ApiToken.across_teams.get(pk=token.pk)
    assert first.last_used_at is not None
    assert first.last_used_from == "127.0.0.1"
    client.ask("me")
    assert ApiToken.across_teams.get(pk=token.pk).last_used_at == first.last_used_at
    entries = Entry.across_teams.filter(action="token.use")
    assert [(one.via, one.token, one.actor_id) for one in entries] == [("api", token.prefix, owner.pk)]
    ApiToken.across_teams.update(last_used_at=timezone.now() - timedelta(hours=1, minutes=1))
    client.ask("me")
    assert entries.all().count() == 2


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch, settings: Any, uncounted: None) -> None:
    monkeypatch.undo()
    settings.API_RATE = 3  # one more every 20 s: longer than the requests of a test take on a busy machine


def test_a_token_may_ask_so_often_and_is_told_when_to_come_back(counted: None, team: Team, owner: User) -> None:
    _, secret = tokens.create_access_token(team, owner, "eager", [], None)
    client, other = ApiClient(secret), client_of(team, owner)
    answers = [client.ask("me") for _ in range(4)]
    assert [one.status_code for one in answers] == [200] * 3 + [429]
    assert answers[0].headers["RateLimit-Limit"] == "3"
    assert [one.headers["RateLimit-Remaining"] for one in answers[:3]] == list("210")
    assert 1 <= int(answers[3].headers["Retry-After"]) <= 20
    assert answers[3].json()["status"] == 429
    assert other.ask("me").status_code == 200


def test_without_redis_everybody_may_pass(counted: None, team: Team, owner: User, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "open_redis_client", lambda: redis.Redis(unix_socket_path="/nowhere/redis.sock"))
    monkeypatch.setattr(limits, "_away_until", 0.0)
    _, secret = tokens.create_access_token(team, owner, "eager", [], None)
    assert {ApiClient(secret).ask("me").status_code for _ in range(8)} == {200}
