"""Files written while they are read: pieces for a download, and cells that no spreadsheet runs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import TypeVar

from asgiref.sync import sync_to_async
from django.core.handlers.asgi import ASGIRequest
from django.db import connection
from django.http import HttpRequest, StreamingHttpResponse

Piece = TypeVar("Piece", str, bytes)
FORMULA = ("=", "+", "-", "@", "\t", "\r")


def csv_safe(text: str) -> str:
    """A text cell that no spreadsheet takes for a formula. Numbers are not passed through here: they may start with a minus."""
    return "'" + text if text.startswith(FORMULA) else text


class Lines:
    """Lets csv.writer return its lines instead of writing them."""

    def write(self, line: str) -> str:
        return line


def stream_attachment(request: HttpRequest, body: Iterator[Piece], name: str, kind: str, reads_database: bool = True) -> StreamingHttpResponse:
    """A download in pieces; under ASGI a plain iterator would be read into memory as a whole first. ``name`` is made by the lab alone.

    One that does not read the database while it is sent gives its connection back before: whoever downloads slowly must not keep it for hours.
    """
    headers = {"Content-Disposition": f'attachment; filename="{name}"', "X-Content-Type-Options": "nosniff", "Cache-Control": "no-store"}
    body = body if reads_database else without_connection(body)
    pieces = one_by_one(body) if isinstance(request, ASGIRequest) else body
    return StreamingHttpResponse(pieces, content_type=kind, headers=headers)


def without_connection(body: Iterator[Piece]) -> Iterator[Piece]:
    if not connection.in_atomic_block:
        connection.close()
    yield from body


async def one_by_one(body: Iterator[Piece]) -> AsyncIterator[Piece]:
    def following() -> Piece | None:
        return next(body, None)

    while (piece := await sync_to_async(following)()) is not None:
        yield piece
