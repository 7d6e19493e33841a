"""When somebody was last seen: by a browser or a token, and it stays when their sessions go."""

import importlib
from datetime import timedelta

import pytest
from allauth.usersessions.models import UserSession
from django.db import connection
from django.test import Client
from django.utils import timezone

from lab.teams.accounts.models import Membership, Team, User
from lab.teams.accounts.sessions import end_sessions
from lab.teams.people.listing import list_member_rows
from tests.lab.api.conftest import client_of


def seen_of(team: Team, user: User) -> object:
    return next(row.seen for row in list_member_rows(team, Membership.objects.get(team=team, user=user)) if row.member.user == user)


def test_it_stays_when_the_sessions_are_deleted(client: Client, team: Team, teammate: User) -> None:
    assert seen_of(team, teammate) is None
    client.force_login(teammate)
    User.objects.filter(pk=teammate.pk).update(last_login=timezone.now() - timedelta(days=30))
    client.get("/runs/")
    seen = seen_of(team, teammate)
    assert seen is not None
    assert timezone.now() - seen < timedelta(minutes=5)  # type: ignore[operator]
    assert end_sessions(teammate) == 1
    assert seen_of(team, teammate) == seen


def test_a_token_of_theirs_counts(team: Team, teammate: User) -> None:
    assert client_of(team, teammate).ask("me").status_code in (200, 404)
    assert seen_of(team, teammate) is not None


@pytest.mark.django_db
def test_the_migration_takes_the_newest_of_what_there_is(team: Team, owner: User, teammate: User) -> None:
    now = timezone.now()
    User.objects.filter(pk=owner.pk).update(last_login=now - timedelta(days=3), seen_at=None)
    UserSession.objects.create(user=owner, ip="127.0.0.1", user_agent="x", session_key="k", last_seen_at=now - timedelta(days=1))
    UserSession.objects.update(last_seen_at=now - timedelta(days=1))
    with connection.cursor() as cursor:
        cursor.execute(importlib.import_module("lab.teams.accounts.migrations.0007_user_seen_at").FILL)
    owner.refresh_from_db()
    teammate.refresh_from_db()
    assert (owner.seen_at, teammate.seen_at) == (now - timedelta(days=1), None)
