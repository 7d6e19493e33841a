"""Numbers as lists and chips show them: three significant digits, thousands shortened, never a zero where there is no value."""

import math
from typing import Any

NONE = "–"
SUFFIXES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def number(value: Any) -> str:
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
        return compact(value)
    if abs(value) < 0.001:
        return f"{value:.1e}"
    digits = max(0, 2 - math.floor(math.log10(abs(value))))
    return f"{value:.{min(digits, 3)}f}"


def compact(value: float) -> str:
    """A count in at most four characters and a suffix: 999, 1.2k, 34k, 5.6M."""
    for size, suffix in SUFFIXES:
        if abs(value) >= size * 0.9995:
            scaled = value / size
            return f"{scaled:.1f}{suffix}" if abs(scaled) < 9.95 else f"{scaled:.0f}{suffix}"
    return f"{value:.0f}"


def size(count: float) -> str:
    """Bytes in binary units."""
    units = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
    power = 0
    while count >= 1024 and power < len(units) - 1:
        count /= 1024
        power += 1
    return f"{count:.1f} {units[power]}" if power and count < 10 else f"{count:.0f} {units[power]}"
