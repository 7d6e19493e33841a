"""A regular expression over completions, under a time limit: what it cannot get through in time is left for the next page, never an error."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from django.db import DataError, OperationalError, connection, transaction

from lab.rollouts.browse.order import Key
from lab.rollouts.trajectories.models import Rollout
from trainers.contract.problems import Problem

SECONDS = 3.0  # a page may take
FEWEST, MOST = 100, 1600  # rollouts that are examined together, at first and later
INVALID, TOO_SLOW = "2201B", "57014"  # SQLSTATE of an invalid expression, of a statement that took too long


class TooSlow(Exception):
    """The time was over before the answer."""


@dataclass(frozen=True)
class PatternSearch:
    """``keys`` that match, of ``examined`` keys up to ``last``; ``ended``: there is nothing beyond it."""

    keys: list[Key]
    examined: int
    last: Key | None
    ended: bool
    timed_out: bool


@contextmanager
def limit_statement_time(seconds: float) -> Iterator[None]:
    """Raises TooSlow when a statement inside takes longer."""
    try:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("SELECT set_config('statement_timeout', %s, true)", [str(max(1, int(seconds * 1000)))])
            yield
            cursor.execute("SELECT set_config('statement_timeout', reset_val, true) FROM pg_settings WHERE name = 'statement_timeout'")
    except OperationalError as error:
        if getattr(error.__cause__, "sqlstate", None) == TOO_SLOW:
            raise TooSlow from None
        raise


def find_pattern_problem(pattern: str) -> Problem | None:
    """Why PostgreSQL cannot use the pattern; None when it can."""
    try:
        with limit_statement_time(SECONDS), connection.cursor() as cursor:
            cursor.execute("SELECT ' ' ~ %s", [pattern])
    except DataError as error:
        if getattr(error.__cause__, "sqlstate", None) != INVALID:
            raise
        reason = str(error).splitlines()[0].removeprefix("invalid regular expression: ")
        fix = r"put a backslash before a literal special character, such as \( or \["
        return Problem("re", pattern, f"the regular expression is invalid: {reason}", fix)
    except TooSlow:
        return Problem("re", pattern, "the regular expression is too complex", "use fewer repetitions, and no nested ones")
    return None


def search_matching_keys(
    pattern: str, keys: Callable[[Key | None, int], list[Key]], start: Key | None, wanted: int, seconds: float = SECONDS
) -> PatternSearch:
    """The first ``wanted`` of the keys after ``start`` whose completion matches; ``keys`` gives so many keys after one, in order.

    A completion that takes all the time there is counts as examined and not matching, so that going on gets past it.
    """
    until = time.monotonic() + seconds
    matches: list[Key] = []
    examined, last, size = 0, start, FEWEST
    ahead: list[Key] = []
    while len(matches) < wanted:
        left = until - time.monotonic()
        ahead = ahead or keys(last, size)
        if not ahead:
            return PatternSearch(matches, examined, last, ended=True, timed_out=False)
        if left <= 0:
            return PatternSearch(matches, examined, last, ended=False, timed_out=True)
        chunk = ahead[:size]
        try:
            matched = matching_among(pattern, [key[-1] for key in chunk], left if len(chunk) == 1 else left / 2)
        except TooSlow:
            if len(chunk) == 1:
                return PatternSearch(matches, examined + 1, chunk[0], ended=False, timed_out=True)
            size = max(1, len(chunk) // 10)
            continue
        matches += [key for key in chunk if key[-1] in matched]
        examined, last, ahead = examined + len(chunk), chunk[-1], ahead[len(chunk) :]
        size = min(4 * size, MOST)
    return PatternSearch(matches, examined, last, ended=False, timed_out=False)


def matching_among(pattern: str, rollouts: Sequence[int], seconds: float) -> set[int]:
    """Those of ``rollouts`` whose completion matches. Raises TooSlow."""
    with limit_statement_time(seconds):
        return set(Rollout.across_teams.filter(pk__in=rollouts, completion__regex=pattern).values_list("pk", flat=True))
