"""What the database, Redis, disks and spools say of themselves, for the operators' page and for /metrics."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import redis
from django.conf import settings
from django.db import connection

from lab.training.runs.models import Run
from lab.training.runs.spool_files import is_spool_here
from trainers.contract import spool


@dataclass(frozen=True)
class DatabaseUse:
    """``size``: bytes. ``limit``: of connections of the whole server."""

    size: int
    connections: int
    limit: int
    version: str


@dataclass(frozen=True)
class RedisUse:
    """Bytes; ``limit`` is 0 where Redis may take what there is."""

    memory: int
    limit: int


def measure_database() -> DatabaseUse:
    """One query. Raises database errors."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pg_database_size(current_database()), (SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()), "
            "current_setting('max_connections'), current_setting('server_version')"
        )
        size, connections, limit, version = cursor.fetchone()
    return DatabaseUse(size, connections, int(limit), version.split()[0])


def measure_redis() -> RedisUse:
    """Raises redis.RedisError."""
    client = redis.from_url(settings.REDIS_URL, socket_timeout=1, socket_connect_timeout=1)
    try:
        found: Any = client.info("memory")
    finally:
        client.close()
    return RedisUse(int(found["used_memory"]), int(found.get("maxmemory", 0)))


def list_disk_folders() -> dict[str, Path]:
    """The folders that fill up, by what operators call them."""
    return {"LAB_HOME": Path(settings.HOME), "runs": Path(settings.RUNS_ROOT)}


def measure_disk(folder: Path) -> tuple[int, int]:
    """(bytes free, bytes in all) of the folder's file system, also before the folder is made. Raises OSError."""
    usage = shutil.disk_usage(next(place for place in (folder, *folder.parents) if place.exists()))
    return usage.free, usage.total


def measure_spool_size(run: Run) -> int:
    """Bytes of the run's spool, counted as ``ingested`` is; 0 where this machine does not see it."""
    try:
        return run.spool_begin + (run.folder / spool.SPOOL).stat().st_size if is_spool_here(run) else 0
    except OSError:
        return 0
