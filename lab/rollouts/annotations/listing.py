"""The team's comments, newest first, a page at a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from django.db.models import Count, F, Q
from django.http import QueryDict

from lab.lib.numbers import parse_whole_number
from lab.rollouts.annotations.models import Comment
from lab.teams.accounts.models import Team, User

SIZE = 50
SHOWS = {"": "All", "mine": "Mine", "open": "Open threads", "resolved": "Resolved threads"}


@dataclass(frozen=True)
class CommentPage:
    rows: list[Comment]
    show: str
    words: str
    next: str  # query string of the page after this one, or empty
    any: bool  # whether the team has comments at all

    @property
    def choices(self) -> list[tuple[str, str, bool]]:
        """(label, query string, whether it is chosen)."""
        return [(label, build_listing_query(show=name, q=self.words), name == self.show) for name, label in SHOWS.items()]


def build_listing_query(**values: str) -> str:
    kept = {name: value for name, value in values.items() if value}
    return f"?{urlencode(kept)}" if kept else "?"


def read_comments(team: Team, user: User, query: QueryDict) -> CommentPage:
    """Parameters: ``show`` (mine, open, resolved), ``q`` (text in comment or snapshot), ``before`` (a comment's id). Unknown values are ignored."""
    show, words = query.get("show", ""), query.get("q", "").replace("\x00", "").strip()[:200]
    show = show if show in SHOWS else ""
    everything = Comment.objects.of(team).filter(deleted_at=None, rollout__run__binned_at=None)
    rows = everything.filter({"mine": Q(user=user), "open": Q(parent=None, resolved_at=None), "resolved": ~Q(resolved_at=None)}.get(show, Q()))
    if words:
        rows = rows.filter(Q(text__icontains=words) | Q(snapshot__icontains=words))
    before = parse_whole_number(query.get("before", ""))
    if before is not None:
        rows = rows.filter(pk__lt=before)
    comments: list[Any] = list(
        rows.select_related("user", "rollout__run", "parent__user", "resolved_by")
        .defer("rollout__completion", "rollout__run__spec")
        .annotate(answered=Count("answers", filter=Q(answers__deleted_at=None)), thread=F("parent"))
        .order_by("-pk")[: SIZE + 1]
    )
    more = build_listing_query(show=show, q=words, before=str(comments[SIZE - 1].pk)) if len(comments) > SIZE else ""
    return CommentPage(comments[:SIZE], show, words, more, bool(comments) or everything.exists())
