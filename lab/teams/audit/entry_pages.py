"""Pages of the audit log, newest first, by keyset: the thousandth costs what the first costs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from django.db.models import QuerySet

from lab.teams.audit.models import Entry

PAGE = 50
BATCH = 2000


@dataclass(frozen=True)
class EntryPage:
    """``older`` and ``newer``: ids to go on from, 0 where there is nothing further."""

    entries: list[Entry]
    older: int = 0
    newer: int = 0


def read_page(entries: QuerySet[Entry], before: int = 0, after: int = 0) -> EntryPage:
    """The newest entries older than the id ``before``, or the next newer than ``after``; neither: the newest."""
    if after:
        rows = list(entries.filter(pk__gt=after).order_by("pk")[: PAGE + 1])
        if len(rows) <= PAGE:  # the first page, whole
            return read_page(entries)
        rows = rows[:PAGE][::-1]
        return EntryPage(rows, older=rows[-1].pk, newer=rows[0].pk)
    rows = list((entries.filter(pk__lt=before) if before else entries).order_by("-pk")[: PAGE + 1])
    more, rows = len(rows) > PAGE, rows[:PAGE]
    return EntryPage(rows, older=rows[-1].pk if more else 0, newer=rows[0].pk if before and rows else 0)


def iterate_entry_batches(entries: QuerySet[Entry]) -> Iterator[list[Entry]]:
    """All of them, newest first, in batches; what is added meanwhile is not among them."""
    before = 0
    while rows := list((entries.filter(pk__lt=before) if before else entries).order_by("-pk")[:BATCH]):
        yield rows
        before = rows[-1].pk
