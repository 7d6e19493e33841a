"""Empties the database after tests that commit. Django's way, TRUNCATE of every table and all permissions made anew, took ten times as long as what
most of these tests do; here only rows go, and only from tables that hold some.
"""

from typing import Any

from django.core.management import call_command
from django.db import connection, transaction

KEPT = {"django_migrations", "django_content_type", "auth_permission"}  # what migrating makes, the same for every test
LARGE = 2_000_000  # bytes of a table that is better made anew than left with so many dead rows


def empty_database(case: Any) -> None:
    """In the place of ``TransactionTestCase._fixture_teardown``. Sequences go on, as they do there."""
    if not empty_filled_tables():
        call_command("flush", verbosity=0, interactive=False, reset_sequences=False)


def empty_filled_tables() -> bool:
    """Whether it could: keys and triggers are off meanwhile, which takes a superuser, as the tests' own server gives them one."""
    names = sorted(set(connection.introspection.django_table_names(only_existing=True, include_views=False)) - KEPT)
    quoted = [connection.ops.quote_name(name) for name in names]
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(
            "SELECT current_setting('is_superuser') = 'on', coalesce(max(pg_table_size(name::regclass)), 0) FROM unnest(%s::text[]) name", [quoted]
        )
        superuser, largest = cursor.fetchone()
        if not superuser or largest > LARGE:
            return False
        cursor.execute(f"LOCK TABLE {', '.join(quoted)} IN SHARE ROW EXCLUSIVE MODE")  # as TRUNCATE does, waits for what others are writing
        cursor.execute(f"SELECT {', '.join(f'EXISTS (SELECT FROM {name})' for name in quoted)}")  # noqa: S608 our own tables' names
        filled = [name for name, some in zip(quoted, cursor.fetchone(), strict=True) if some]
        if filled:
            cursor.execute("SET LOCAL session_replication_role = replica")
            cursor.execute("; ".join(f"DELETE FROM {name}" for name in filled))  # noqa: S608
    return True
