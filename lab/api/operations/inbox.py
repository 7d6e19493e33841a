"""The inbox: what the token's person was told in its team, and marking it read."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from django.db.models import Q
from django.http import Http404, HttpRequest
from django.utils import timezone
from ninja import Field, Schema

from lab.accounts.addresses import absolute
from lab.alerts import reading
from lab.alerts.kinds import KINDS
from lab.alerts.models import Notice, NoticeQuerySet
from lab.api.base import Given, Query, caller_of, needs, noun
from lab.api.paging import After, Limit, Page, page
from lab.api.problems import invalid

router = noun("Inbox and alerts")
WHY = "an inbox is somebody's"


class NoticeOut(Schema):
    id: UUID
    kind: str = Field(examples=["run-finished"])
    subject: str
    text: str
    url: str = Field(description="What it is about; empty for none.")
    created_at: datetime
    read_at: datetime | None


class InboxOut(Page[NoticeOut]):
    unread: int = Field(description="In the whole inbox.")


class ReadIn(Given):
    read: bool = Field(True, description="False: unread again.")


class ReadAllOut(Schema):
    read: int = Field(description="How many were unread.")
    at: str = Field(description="When they were read, to the microsecond: what takes it back.", json_schema_extra={"format": "date-time"})


class UnreadIn(Given):
    at: datetime = Field(description="`at` of having read all.", examples=["2026-01-31T12:00:00.123456Z"])


class UnreadOut(Schema):
    unread: int


def mine(request: HttpRequest) -> NoticeQuerySet:
    caller = caller_of(request)
    return Notice.objects.of(caller.team, caller.person(WHY))


def shown(one: Notice) -> dict[str, Any]:
    plain = {name: getattr(one, name) for name in ("id", "kind", "subject", "text", "created_at", "read_at")}
    return {**plain, "url": absolute(one.url) if one.url else ""}


def older(rows: Any, every: Any, after: str) -> Any:
    """What follows the row of ``every`` with the id ``after``, newest first. Raises ApiProblem."""
    try:
        last = every.filter(pk=UUID(after)).first()
    except ValueError:
        last = None
    if last is None:
        raise invalid("after", "is not the next of a page", "take it from the page before as it is, or leave it out for the first page")
    return rows.filter(Q(created_at__lt=last.created_at) | Q(created_at=last.created_at, pk__gt=last.pk))


@router.get("/inbox", auth=needs("lab.enter"), response=InboxOut, summary="What you were told")
def list_notices(
    request: HttpRequest,
    after: After,
    limit: Limit,
    unread: bool = Query(False, description="Only what is unread."),
    kind: str = Query("", max_length=20, description="Only that kind.", examples=["run-failed"]),
) -> object:
    """Newest first."""
    if kind and kind not in KINDS:
        raise invalid("kind", "is no kind of notice", f"take one of {', '.join(KINDS)}")
    every = mine(request)
    rows = every.unread() if unread else every
    rows = rows.filter(kind=kind) if kind else rows
    rows = older(rows, every, after) if after else rows
    found = page(list(rows.order_by("-created_at", "pk")[: limit + 1]), limit, lambda row: row.pk, shown)
    return {**found, "unread": every.unread().count()}


@router.post("/inbox/{uuid:notice_id}/read", auth=needs("lab.enter"), response=NoticeOut, summary="Mark a notice read")
def read_notice(request: HttpRequest, notice_id: UUID, given: ReadIn) -> object:
    """Or unread again."""
    every = mine(request)
    one = every.filter(pk=notice_id).first()
    if one is None:
        raise Http404("Nothing in your inbox has this id.")
    reading.mark(every, one, given.read)
    return shown(every.get(pk=one.pk))


@router.post("/inbox/read", auth=needs("lab.enter"), response=ReadAllOut, summary="Mark all read")
def read_all(request: HttpRequest) -> object:
    """At one moment, by which it is taken back."""
    count, now = reading.mark_all(mine(request))
    return {"read": count, "at": f"{now:%Y-%m-%dT%H:%M:%S.%fZ}"}


@router.post("/inbox/unread", auth=needs("lab.enter"), response=UnreadOut, summary="Take back having read all")
def unread_all(request: HttpRequest, given: UnreadIn) -> object:
    """Only what was read at that moment is unread again."""
    at = given.at if timezone.is_aware(given.at) else timezone.make_aware(given.at)
    if not 2000 <= at.year < 9000:
        raise invalid("at", "is no moment at which anything was read", "take it as having read all answered it")
    return {"unread": reading.unmark(mine(request), at)}
