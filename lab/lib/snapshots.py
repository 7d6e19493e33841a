"""Reads that belong together: all of them see the database as of one moment."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connection, transaction
from psycopg import IsolationLevel


@contextmanager
def open_read_snapshot() -> Iterator[None]:
    """One REPEATABLE READ, READ ONLY transaction around what is inside. A transaction that is already open decides for itself."""
    if connection.in_atomic_block:
        yield
        return
    connection.ensure_connection()
    driver = connection.connection
    before = driver.isolation_level, driver.read_only
    driver.isolation_level, driver.read_only = IsolationLevel.REPEATABLE_READ, True  # goes with BEGIN: no statement of its own
    try:
        with transaction.atomic():
            yield
    finally:
        if not driver.closed:
            driver.isolation_level, driver.read_only = before
