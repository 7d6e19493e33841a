"""The inbox: what the token's person was told in its team, and marking it read."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any
from uuid import UUID

from django.db.models import Q
from django.http import Http404, HttpRequest
from django.utils import timezone
from ninja import Field, Schema
from pydantic import AfterValidator

from lab.edges.api.base import Query, RequestBody, caller_of, make_router, require_permission
from lab.edges.api.page_cursors import After, Limit, Page, paginate_rows
from lab.edges.api.problems import make_invalid_problem
from lab.teams.accounts.addresses import build_absolute_url
from lab.watching.alerts import read_marks
from lab.watching.alerts.kinds import KINDS
from lab.watching.alerts.models import Notice, NoticeQuerySet

router = make_router("Inbox and alerts")
WHY = "an inbox belongs to a person"


class NoticeOut(Schema):
    id: UUID
    kind: str = Field(examples=["run-finished"])
    subject: str
    text: str
    url: str = Field(description="Page it is about; empty if there is none.")
    created_at: datetime
    read_at: datetime | None


class InboxOut(Page[NoticeOut]):
    unread: int = Field(description="Unread notifications in the whole inbox.")


class ReadIn(RequestBody):
    read: bool = Field(True, description="false: marks it unread again.")


class ReadAllOut(Schema):
    read: int = Field(description="Number of notifications that were unread.")
    at: str = Field(description="When they were marked read, to the microsecond; send it to undo this.", json_schema_extra={"format": "date-time"})


def convert_to_utc(moment: datetime) -> datetime:
    """As PostgreSQL takes it, which knows no offsets of 16 hours and more. Raises ValueError."""
    try:
        return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
    except OverflowError:
        raise ValueError("lies outside the years 1 to 9999 in UTC") from None


class UnreadIn(RequestBody):
    at: Annotated[datetime, AfterValidator(convert_to_utc)] = Field(
        description="`at` as returned by marking all read.", examples=["2026-01-31T12:00:00.123456Z"]
    )


class UnreadOut(Schema):
    unread: int


def select_own_notices(request: HttpRequest) -> NoticeQuerySet:
    caller = caller_of(request)
    return Notice.objects.of(caller.team, caller.person(WHY))


def serialize_notice(notice: Notice) -> dict[str, Any]:
    plain = {name: getattr(notice, name) for name in ("id", "kind", "subject", "text", "created_at", "read_at")}
    return {**plain, "url": build_absolute_url(notice.url) if notice.url else ""}


def select_older_rows(rows: Any, every: Any, after: str) -> Any:
    """What follows the row of ``every`` with the id ``after``, newest first. Raises ApiProblem."""
    try:
        last = every.filter(pk=UUID(after)).first()
    except ValueError:
        last = None
    if last is None:
        raise make_invalid_problem("after", "is not a valid page cursor", "use the value of the previous page, or leave it out for the first page")
    return rows.filter(Q(created_at__lt=last.created_at) | Q(created_at=last.created_at, pk__gt=last.pk))


@router.get("/inbox", auth=require_permission("lab.enter"), response=InboxOut, summary="Notifications")
def list_notices(
    request: HttpRequest,
    after: After,
    limit: Limit,
    unread: bool = Query(False, description="Only unread notifications."),
    kind: str = Query("", max_length=20, description="Only this kind.", examples=["run-failed"]),
) -> object:
    """Newest first."""
    if kind and kind not in KINDS:
        raise make_invalid_problem("kind", "is not a kind of notification", f"use one of {', '.join(KINDS)}")
    every = select_own_notices(request)
    rows = every.unread() if unread else every
    rows = rows.filter(kind=kind) if kind else rows
    rows = select_older_rows(rows, every, after) if after else rows
    page = paginate_rows(list(rows.order_by("-created_at", "pk")[: limit + 1]), limit, lambda row: row.pk, serialize_notice)
    return {**page, "unread": every.unread().count()}


@router.post("/inbox/{uuid:notice_id}/read", auth=require_permission("lab.enter"), response=NoticeOut, summary="Mark a notification read")
def read_notice(request: HttpRequest, notice_id: UUID, given: ReadIn) -> object:
    """Or unread again."""
    every = select_own_notices(request)
    notice = every.filter(pk=notice_id).first()
    if notice is None:
        raise Http404("Your inbox has no notification with this id.")
    read_marks.set_notice_read(every, notice, given.read)
    return serialize_notice(every.get(pk=notice.pk))


@router.post("/inbox/read", auth=require_permission("lab.enter"), response=ReadAllOut, summary="Mark all read")
def read_all(request: HttpRequest) -> object:
    """To undo this, send the returned `at`."""
    count, now = read_marks.mark_all(select_own_notices(request))
    return {"read": count, "at": f"{now:%Y-%m-%dT%H:%M:%S.%fZ}"}


@router.post("/inbox/unread", auth=require_permission("lab.enter"), response=UnreadOut, summary="Undo marking all read")
def unread_all(request: HttpRequest, given: UnreadIn) -> object:
    """Only notifications marked read at that moment become unread again."""
    at = given.at if timezone.is_aware(given.at) else timezone.make_aware(given.at)
    if not 2000 <= at.year < 9000:
        raise make_invalid_problem("at", "is not a time at which notifications were read", "use the value returned by marking all read")
    return {"unread": read_marks.unmark_read_batch(select_own_notices(request), at)}
