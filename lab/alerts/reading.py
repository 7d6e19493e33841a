"""Marking what a person was told read and unread; their open pages count anew."""

from __future__ import annotations

from datetime import datetime

from django.utils import timezone

from lab.alerts.models import Notice, NoticeQuerySet
from lab.alerts.notifying import wake


def mark(mine: NoticeQuerySet, one: Notice, read: bool) -> None:
    mine.filter(pk=one.pk).update(read_at=timezone.now() if read else None)
    wake([one])


def mark_all(mine: NoticeQuerySet) -> tuple[int, datetime]:
    """How many were unread, and the one moment they are read at, by which ``unmark`` knows them again."""
    now = timezone.now()
    count = mine.unread().update(read_at=now)
    if count:
        wake(mine.filter(read_at=now)[:1])
    return count, now


def unmark(mine: NoticeQuerySet, when: datetime) -> int:
    """How many are unread again: those of one ``mark_all``."""
    count = mine.filter(read_at=when).update(read_at=None)
    wake(mine.unread()[:1])
    return count
