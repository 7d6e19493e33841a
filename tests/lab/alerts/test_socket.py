"""The inbox's websocket: the count at once, every change of it, and nothing for who may not."""

from __future__ import annotations

import pytest
from asgiref.sync import sync_to_async
from django.contrib.auth.models import AnonymousUser

from lab.teams.accounts.models import Membership, Team, User
from lab.training.runs import consumers
from lab.urls import websocket_urlpatterns
from lab.watching.alerts import kinds
from lab.watching.alerts.models import Notice
from lab.watching.alerts.notices import notify_members
from tests.lab import test_consumers
from tests.lab.test_consumers import close_code, opened

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def all_sockets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumers, "POLL_SECONDS", 0.3)
    monkeypatch.setattr(test_consumers, "websocket_urlpatterns", websocket_urlpatterns)


@sync_to_async
def tell(team: Team, user: User, key: str) -> None:
    notify_members(team, kinds.NEWS, f"subject {key}", url="/t/reasoning/runs/", users=[user], key=key)


async def test_the_count_comes_at_once_and_new_notices_by_name(team: Team, owner: User, teammate: User) -> None:
    await tell(team, owner, "old")
    async with opened(f"/ws/inbox/{team.pk}/", owner) as page:
        first = await page.until_type("inbox")
        assert (first["unread"], first["new"]) == (1, [])
        await tell(team, teammate, "not mine")
        await tell(team, owner, "fresh")
        told = await page.until_type("inbox")
        assert told["unread"] == 2
        assert [one["subject"] for one in told["new"]] == ["subject fresh"]
        await sync_to_async(Notice.across_teams.filter(user=owner).update)(read_at="2026-01-01T00:00:00Z")
        assert (await page.until_type("inbox"))["unread"] == 0


async def test_who_is_not_in_the_team_or_leaves_it_is_shut_out(team: Team, owner: User, teammate: User, stranger: User) -> None:
    for user, code in ((stranger, 4404), (AnonymousUser(), 4401)):
        async with opened(f"/ws/inbox/{team.pk}/", user) as page:
            assert await close_code(page) == code
    async with opened(f"/ws/inbox/{2**70}/", owner) as page:
        assert await close_code(page) == 4404
    async with opened(f"/ws/inbox/{team.pk}/", teammate) as page:
        await page.until_type("inbox")
        await sync_to_async(Team.objects.update)(requires_mfa=True)  # and has no second factor
        assert await close_code(page) == 4404
    await sync_to_async(Team.objects.update)(requires_mfa=False)
    async with opened(f"/ws/inbox/{team.pk}/", owner) as page:
        await page.until_type("inbox")
        await sync_to_async(Membership.objects.filter(user=owner).update)(active=False)
        assert await close_code(page) == 4404
