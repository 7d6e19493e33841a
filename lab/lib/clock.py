"""The database's clock, the only one that all processes share: each machine's own may be wrong by seconds or a day.

Conditions and updates take ``Now()`` (PostgreSQL's ``statement_timestamp()``), which costs nothing; what is compared in Python asks here.
"""

from __future__ import annotations

from datetime import datetime
from typing import cast

from django.db import connection


def database_now() -> datetime:
    """What the database's clock says, with its time zone. One small query."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT statement_timestamp()")
        return cast(datetime, cursor.fetchone()[0])
