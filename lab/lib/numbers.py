"""Numbers as lists and chips show them: three significant digits, thousands shortened, never a zero where there is no value."""

import math
from collections.abc import Iterable
from typing import Any

MAX_ID = 2**63 - 1  # of a bigint column
MAX_INTEGER = 2**31 - 1  # of an integer column: numbers of runs, steps, places
MOST_DIGITS = 40  # leading zeros included
NONE = "–"
SUFFIXES = ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k"))


def format_number(value: Any) -> str:
    """``value`` with about three significant digits; a dash where there is none (also for text and booleans)."""
    if isinstance(value, str) and value in ("nan", "inf", "-inf"):
        value = float(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return NONE
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    if value == int(value) and abs(value) < 1000:
        return str(int(value))
    if abs(value) >= 1000:
        return format_compact_count(value)
    if abs(value) < 0.001:
        return f"{value:.1e}"
    digits = max(0, 2 - math.floor(math.log10(abs(value))))
    return f"{value:.{min(digits, 3)}f}"


def format_compact_count(value: float) -> str:
    """A count in at most four characters and a suffix: 999, 1.2k, 34k, 5.6M."""
    for size, suffix in SUFFIXES:
        if abs(value) >= size * 0.9995:
            scaled = value / size
            return f"{scaled:.1f}{suffix}" if abs(scaled) < 9.95 else f"{scaled:.0f}{suffix}"
    return f"{value:.0f}"


def format_byte_size(count: float) -> str:
    """Bytes in binary units."""
    units = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
    power = 0
    while count >= 1024 and power < len(units) - 1:
        count /= 1024
        power += 1
    return f"{count:.1f} {units[power]}" if power and count < 10 else f"{count:.0f} {units[power]}"


def parse_whole_number(text: str | None, most: int = MAX_ID, least: int = 0) -> int | None:
    """The whole number that a person or a program wrote in ASCII digits, from ``least`` to ``most``; None for anything else, however long.

    The one way from an address or a form to an integer: Python refuses to read more than 4,300 digits, and the database more than 19.
    """
    if not (text and text.isascii() and text.isdigit() and len(text) <= MOST_DIGITS):
        return None
    number = int(text)
    return number if least <= number <= most else None


def write_id_array(ids: Iterable[int]) -> str:
    """The ids as PostgreSQL writes a ``bigint[]``, to which the query casts it: a list of a thousand takes psycopg four times as long."""
    return "{" + ",".join(map(str, ids)) + "}"


def parse_ids(texts: Iterable[str]) -> list[int]:
    """The ids among what a form or an address names, in its order; what can be no id is left out."""
    return [pk for text in texts if (pk := parse_whole_number(text)) is not None]
