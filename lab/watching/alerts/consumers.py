"""The websocket of every open page that counts a person's unread notices in one team and tells of new ones."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from channels.db import database_sync_to_async
from django.db.models import Count, Max
from django.utils import timezone

from lab.lib.shared_queries import SharedQuery
from lab.teams.accounts.socket_access import read_open_teams
from lab.training.runs.consumers import PollingConsumer
from lab.watching.alerts.models import Notice
from lab.watching.alerts.notices import inbox_group

Inbox = tuple[int, int]  # ids of a team and of a person
SHOWN = 5  # new notices a message names; more are counted


def count_unread(asked: set[Inbox]) -> dict[Inbox, tuple[int, datetime]]:
    """How many notices each person has not read in the team, and when the newest of them came; nothing where there is none."""
    teams, people = {team_id for team_id, _ in asked}, {user_id for _, user_id in asked}
    unread = Notice.objects.filter(team__in=teams, user__in=people, inbox=True).unread()
    counts = unread.order_by().values_list("team_id", "user_id").annotate(Count("pk"), Max("created_at"))
    return {(team_id, user_id): (count, newest) for team_id, user_id, count, newest in counts}


UNREAD = SharedQuery(count_unread)


class InboxConsumer(PollingConsumer):
    """Sends {"type": "inbox", "unread": n, "new": [{"id", "subject"}]} once at the start and whenever one of them changes."""

    group_name: str | None = None
    unread: int | None = None
    seen: datetime

    async def group(self) -> str | None:
        self.team_id = self.scope["url_route"]["kwargs"]["team_id"]
        return inbox_group(self.team_id, self.user_id) if self.team_id in await read_open_teams(self.user_id, "lab.enter") else None

    async def connect(self) -> None:
        self.seen = timezone.now()
        await super().connect()
        if self.group_name is not None:
            async with self.lock:
                await self.poll()

    @database_sync_to_async  # type: ignore[untyped-decorator]
    def read_new(self) -> list[tuple[Any, str, datetime]]:
        new = Notice.objects.of(self.team_id, self.user_id).unread().filter(created_at__gt=self.seen)
        return list(new.order_by("created_at").values_list("pk", "subject", "created_at"))

    async def poll(self) -> None:
        unread, newest = await UNREAD.ask((self.team_id, self.user_id)) or (0, self.seen)
        new = await self.read_new() if newest > self.seen else []
        if unread == self.unread and not new:
            return
        self.unread = unread
        self.seen = max([self.seen, *(at for _, _, at in new)])
        await self.send_object({"type": "inbox", "unread": unread, "new": [{"id": str(pk), "subject": subject} for pk, subject, _ in new[:SHOWN]]})

    async def notice(self, message: dict[str, Any]) -> None:
        async with self.lock:
            await self.poll()
