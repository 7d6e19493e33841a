"""Reads that belong together: all of them see the database as of one moment."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connection, transaction


@contextmanager
def open_read_snapshot() -> Iterator[None]:
    """One REPEATABLE READ, READ ONLY transaction around what is inside. A transaction that is already open decides for itself."""
    if connection.in_atomic_block:
        yield
        return
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        yield
