"""Numbers of the runs that somebody has ticked, as forms and addresses carry them."""

from __future__ import annotations

from django.http import QueryDict

from lab.lib.numbers import MAX_INTEGER, parse_whole_number


def read_run_numbers(params: QueryDict) -> list[int]:
    """``run``, once for each number; what is none is left out."""
    return [number for text in params.getlist("run") if (number := parse_whole_number(text, MAX_INTEGER))]
