"""The websocket of every open page that counts a person's unread notices in one team and tells of new ones."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from channels.db import database_sync_to_async
from django.utils import timezone

from lab.teams.accounts.socket_access import read_open_teams
from lab.training.runs.consumers import PollingConsumer
from lab.watching.alerts.models import Notice
from lab.watching.alerts.notices import inbox_group

SHOWN = 5  # new notices a message names; more are counted


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
    def look(self) -> tuple[int, list[tuple[Any, str, datetime]]]:
        mine = Notice.objects.of(self.team_id, self.user_id)
        new = mine.unread().filter(created_at__gt=self.seen).order_by("created_at").values_list("pk", "subject", "created_at")
        return mine.unread().count(), list(new)

    async def poll(self) -> None:
        unread, new = await self.look()
        if unread == self.unread and not new:
            return
        self.unread = unread
        self.seen = max([self.seen, *(at for _, _, at in new)])
        await self.send_object({"type": "inbox", "unread": unread, "new": [{"id": str(pk), "subject": subject} for pk, subject, _ in new[:SHOWN]]})

    async def notice(self, message: dict[str, Any]) -> None:
        async with self.lock:
            await self.poll()
