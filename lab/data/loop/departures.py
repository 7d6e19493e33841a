"""Feeds that somebody who leaves the team began: they go on, since the queue they fill is the team's; the admin is told of them."""

from __future__ import annotations

from lab.data.loop.models import Feed
from lab.teams.accounts.models import Team, User
from lab.teams.people import departures
from lab.teams.people.departures import MemberHolding


def register_feed_leaving() -> None:
    departures.register_leaving_hook("loop", None, list_held_feeds)


def list_held_feeds(team: Team, user: User) -> list[MemberHolding]:
    feeds = Feed.objects.filter(team=team, created_by=user, stopped_at=None).select_related("run", "queue")[:5]
    return [
        MemberHolding(f"Groups of {feed.run} are still routed into “{feed.queue.name}”; stop the feed on the run's page.", True) for feed in feeds
    ]
