"""Lists of the lab as iterators: a page is fetched when it is needed, and reading goes on from any row, also in another process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any, Generic, TypeVar

import msgspec

from trainers.outside.client import LabError

Row = TypeVar("Row")
# From where a page begins to its rows and to where the next one begins.
FetchPage = Callable[[str], tuple[list[Row], str | None]]


class Rows(Generic[Row]):
    """Each row once. ``position`` is where the rows after the last one begin: give it as ``after`` to the same method with the
    same arguments.

    Raises LabError while it is read, also for a position that is none.
    """

    def __init__(self, fetch_page: FetchPage[Row], after: str = "") -> None:
        self.fetch_page = fetch_page
        self.page, self.read = split_position(after)

    @property
    def position(self) -> str:
        return f"{self.read}:{self.page}"

    def __iter__(self) -> Iterator[Row]:
        while True:
            rows, following = self.fetch_page(self.page)
            for row in rows[self.read :]:
                self.read += 1
                yield row
            if following is None:
                return
            self.page, self.read = following, 0

    def to_dicts(self) -> list[dict[str, Any]]:
        """All rows as dicts; times stay datetimes."""
        return [msgspec.to_builtins(row, builtin_types=(), str_keys=True) for row in self]

    def to_pandas(self) -> Any:
        """All rows as a pandas.DataFrame. Raises LabError where pandas is not installed."""
        return import_frames("pandas").DataFrame(self.to_dicts())

    def to_polars(self) -> Any:
        """All rows as a polars.DataFrame. Raises LabError where polars is not installed."""
        return import_frames("polars").DataFrame(self.to_dicts(), infer_schema_length=None)


def split_position(position: str) -> tuple[str, int]:
    """(cursor of the page, rows of it that were read). Raises LabError."""
    if not position:
        return "", 0
    read, colon, page = position.partition(":")
    if not colon or not (read.isascii() and read.isdigit()):
        raise LabError(f"after must be the position of earlier rows, such as '0:128'; it is {position!r}")
    return page, int(read)


def import_frames(package: str) -> Any:
    try:
        return import_module(package)
    except ImportError as error:
        raise LabError(f"data frames need {package}, which cannot be imported ({error}): pip install {package}, or use to_dicts()") from None
