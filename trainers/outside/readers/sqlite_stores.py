"""Reading somebody else's SQLite database while it is written: read-only, for a moment at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from trainers.outside.readers.base import SourceError

BUSY_SECONDS = 5.0


@contextmanager
def open_read_only(path: Path) -> Iterator[Any]:
    """A connection. Raises SourceError where it is no database, is locked for long, or Python has no sqlite3."""
    try:
        import sqlite3
    except ImportError:
        raise SourceError("this store is SQLite, and this Python was built without the module sqlite3") from None
    try:
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True, timeout=BUSY_SECONDS)) as connection:
            yield connection
    except sqlite3.Error as error:
        raise SourceError(f"{path} cannot be read: {error}") from None


def has_tables(path: Path, names: Sequence[str]) -> bool:
    try:
        with path.open("rb") as file:
            if file.read(16) != b"SQLite format 3\0":
                return False
        with open_read_only(path) as connection:
            found = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    except (OSError, SourceError):
        return False
    return set(names) <= found


def choose_stored_run(path: Path, runs: Sequence[tuple[str, str]], asked: str) -> str:
    """The id of the only run, or of that with the id or name ``asked``; ``runs`` are (id, name). Raises SourceError."""
    fitting = [id_ for id_, name in runs if not asked or asked in (id_, name)]
    if len(fitting) == 1:
        return fitting[0]
    if not runs:
        raise SourceError(f"{path} holds no run yet")
    names = ", ".join(f"{name} ({id_})" if name != id_ else name for id_, name in runs[:20])
    raise SourceError(f"{path} holds {len(runs)} runs, {len(fitting)} of them fitting: name one with --run: {names}")
