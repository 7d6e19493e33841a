"""The websocket of a sampling: the whole of it whenever something was written; a few kilobytes while it lasts."""

from __future__ import annotations

from typing import Any, ClassVar, cast
from uuid import UUID

from channels.db import database_sync_to_async

from lab.models.playground import display
from lab.models.playground.models import SamplerQuestion, Sampling
from lab.models.playground.sampling import group_of
from lab.teams.accounts.socket_access import read_open_teams
from lab.training.runs.consumers import PollingConsumer


class SamplerQuestionConsumer(PollingConsumer):
    """Sends the state of a question to a checkpoint once at the start and whenever it is another one."""

    model: ClassVar[type[SamplerQuestion]]
    parameter: ClassVar[str]  # of the address
    group_name: str | None = None
    sent: dict[str, Any] | None = None

    async def group(self) -> str | None:
        self.question_id: UUID = self.scope["url_route"]["kwargs"][self.parameter]
        return group_of(self.question_id) if await self.may_see(await read_open_teams(self.user_id, "policies.read")) else None

    @database_sync_to_async  # type: ignore[untyped-decorator]
    def may_see(self, team_ids: frozenset[int]) -> bool:
        return bool(cast(Any, self.model.objects).filter(pk=self.question_id, team__in=team_ids).exists())

    def build_state(self) -> dict[str, Any]:
        """What the page draws, read from the database."""
        raise NotImplementedError

    async def connect(self) -> None:
        await super().connect()
        if self.group_name is not None:
            async with self.lock:
                await self.poll()

    @database_sync_to_async  # type: ignore[untyped-decorator]
    def look(self) -> dict[str, Any]:
        return self.build_state()

    async def poll(self) -> None:
        state = await self.look()
        if state != self.sent:
            self.sent = state
            await self.send_object(state)

    async def sampled(self, message: dict[str, Any]) -> None:
        async with self.lock:
            await self.poll()


class SamplingConsumer(SamplerQuestionConsumer):
    model, parameter = Sampling, "sampling_id"

    def build_state(self) -> dict[str, Any]:
        return display.build_sampling_state(Sampling.across_teams.get(pk=self.question_id))
