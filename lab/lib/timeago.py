"""Durations and ages in the shortest form that is still exact enough: 42 s, 3 min, 2 h 5 min, 4 d."""

from datetime import datetime

from django.utils import timezone

MINUTE, HOUR, DAY = 60, 3600, 86400


def format_duration(seconds: float) -> str:
    """A length of time in at most two units; negative counts as 0."""
    whole = max(0, round(seconds))
    if whole < MINUTE:
        return f"{whole} s"
    if whole < HOUR:
        minutes, rest = divmod(whole, MINUTE)
        return f"{minutes} min {rest} s" if minutes < 5 and rest else f"{minutes} min"
    if whole < DAY:
        hours, rest = divmod(whole, HOUR)
        return f"{hours} h {rest // MINUTE} min" if rest >= MINUTE else f"{hours} h"
    days, rest = divmod(whole, DAY)
    return f"{days} d {rest // HOUR} h" if days < 7 and rest >= HOUR else f"{days} d"


def format_age(moment: datetime, now: datetime | None = None) -> str:
    """How long ago ``moment`` was, in one unit."""
    seconds = max(0, ((now or timezone.now()) - moment).total_seconds())
    if seconds < 5:
        return "now"
    for unit, length in (("d", DAY), ("h", HOUR), ("min", MINUTE)):
        if seconds >= length:
            return f"{int(seconds // length)} {unit}"
    return f"{int(seconds)} s"
