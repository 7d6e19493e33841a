"""Addresses that end with numbers, for lists of them: Django's ``reverse`` takes as long as a cell of a table."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from django.urls import get_script_prefix, reverse

KEPT = 2048  # beginnings of addresses


def build_numbered_address(page: str, numbers: tuple[int, ...], *where: Any) -> str:
    """The address of a page whose last parts are numbers. Only what stands before them is reversed, once: that takes as long as a cell."""
    return f"{build_address_start(get_script_prefix(), page, len(numbers), *where)}{'/'.join(map(str, numbers))}/"


@lru_cache(KEPT)
def build_address_start(prefix: str, page: str, numbers: int, *where: Any) -> str:
    """The address of the page up to its numbers. ``prefix``: the team's, which stands in every address (Django's script prefix).

    Raises ValueError for a page whose address ends otherwise.
    """
    address, end = reverse(page, args=[*where, *[0] * numbers]), "0/" * numbers
    if not address.endswith(f"/{end}"):
        raise ValueError(f"the address of {page!r} does not end with {numbers} numbers: {address}")
    return address.removesuffix(end)
