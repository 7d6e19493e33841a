"""Feeds that somebody who leaves the team began: they go on, since the queue they fill is the team's; the admin is told of them."""

from __future__ import annotations

from lab.accounts.models import Team, User
from lab.loop.models import Feed
from lab.people import leaving
from lab.people.leaving import Held


def register() -> None:
    leaving.register(None, holds)


def holds(team: Team, user: User) -> list[Held]:
    feeds = Feed.objects.filter(team=team, created_by=user, stopped_at=None).select_related("run", "queue")[:5]
    return [Held(f"Groups of {feed.run} go on into “{feed.queue.name}”; stop that on the run's page.", True) for feed in feeds]
