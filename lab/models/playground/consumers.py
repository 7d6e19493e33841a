"""The websocket of a sampling: the whole of it whenever something was written; a few kilobytes while it lasts."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from channels.db import database_sync_to_async

from lab.models.playground import display
from lab.models.playground.models import Sampling
from lab.models.playground.sampling import group_of
from lab.training.runs.consumers import PollingConsumer, teams_open_to


class SamplingConsumer(PollingConsumer):
    """Sends ``showing.state`` once at the start and whenever it is another one."""

    group_name: str | None = None
    sent: dict[str, Any] | None = None

    async def group(self) -> str | None:
        self.sampling_id: UUID = self.scope["url_route"]["kwargs"]["sampling_id"]
        return group_of(self.sampling_id) if await self.may_see() else None

    @database_sync_to_async  # type: ignore[untyped-decorator]
    def may_see(self) -> bool:
        mine = teams_open_to(self.user_id, "policies.read")
        return Sampling.objects.filter(pk=self.sampling_id, team__in=mine.values("team")).exists()

    async def connect(self) -> None:
        await super().connect()
        if self.group_name is not None:
            async with self.lock:
                await self.poll()

    @database_sync_to_async  # type: ignore[untyped-decorator]
    def look(self) -> dict[str, Any]:
        return display.build_sampling_state(Sampling.across_teams.get(pk=self.sampling_id))

    async def poll(self) -> None:
        state = await self.look()
        if state != self.sent:
            self.sent = state
            await self.send_object(state)

    async def sampled(self, message: dict[str, Any]) -> None:
        async with self.lock:
            await self.poll()
