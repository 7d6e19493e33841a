"""Pages of a list by key: an answer says where the next page begins, and rows that arrive meanwhile move nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Generic, TypeVar

from ninja import Field, Schema

from lab.edges.api.base import Query
from lab.edges.api.problems import make_invalid_problem
from lab.lib.numbers import MAX_ID, parse_whole_number

Row = TypeVar("Row")
MOST = 200
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MOST_MICROSECONDS = 10**17  # since 1970; in the year 5138

Limit = Annotated[int, Query(50, ge=1, le=MOST, description=f"Rows per page, up to {MOST}.")]
After = Annotated[str, Query("", max_length=500, description="`next` of the previous page.")]


class Page(Schema, Generic[Row]):
    items: list[Row]
    next: str | None = Field(None, description="Value of `after` for the next page; null on the last page.", examples=["128"])


def paginate_rows(rows: Sequence[Any], limit: int, key: Callable[[Any], Any], serialize: Callable[[Any], Any] = lambda row: row) -> dict[str, Any]:
    """``rows`` hold one more than ``limit`` where the list goes on."""
    kept = rows[:limit]
    return {"items": [serialize(row) for row in kept], "next": str(key(kept[-1])) if len(rows) > limit else None}


def parse_after_id(after: str) -> int:
    """The id a page begins after; MAX_ID for the first page of a list with the newest first. Raises ApiProblem."""
    if not after:
        return MAX_ID
    if (key := parse_whole_number(after)) is None:
        raise make_invalid_problem("after", "is not a valid page cursor", "use the value of the previous page, or leave it out for the first page")
    return key


def to_microseconds(moment: datetime) -> int:
    return (moment - EPOCH) // timedelta(microseconds=1)


def parse_before_moment(after: str) -> datetime:
    """The moment in microseconds that a page begins before. Raises ApiProblem."""
    return EPOCH + timedelta(microseconds=min(parse_after_id(after), MOST_MICROSECONDS))
