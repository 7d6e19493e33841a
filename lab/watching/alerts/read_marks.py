"""Marking what a person was told read and unread; their open pages count anew."""

from __future__ import annotations

from datetime import datetime

from django.utils import timezone

from lab.watching.alerts.models import Notice, NoticeQuerySet
from lab.watching.alerts.notices import wake_inbox_pages


def set_notice_read(mine: NoticeQuerySet, notice: Notice, read: bool) -> None:
    mine.filter(pk=notice.pk).update(read_at=timezone.now() if read else None)
    wake_inbox_pages([notice])


def mark_all(mine: NoticeQuerySet) -> tuple[int, datetime]:
    """How many were unread, and the one moment they are read at, by which ``unmark_read_batch`` knows them again."""
    now = timezone.now()
    count = mine.unread().update(read_at=now)
    if count:
        wake_inbox_pages(mine.filter(read_at=now)[:1])
    return count, now


def unmark_read_batch(mine: NoticeQuerySet, when: datetime) -> int:
    """How many are unread again: those of one ``mark_all``."""
    count = mine.filter(read_at=when).update(read_at=None)
    wake_inbox_pages(mine.unread()[:1])
    return count
