"""Regular expressions that people write, run on text that policies write: with a limit on time, so that none can hang a run."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from trainers.contract.problems import Contradiction, Problem
from trainers.rewards.scores import UnusableRow

if TYPE_CHECKING:
    import regex

LONGEST_PATTERN = 1000  # characters
SECONDS = 1.0  # for one search


@lru_cache(maxsize=256)
def compile_pattern(pattern: str, ignore_case: bool = False) -> regex.Pattern[str]:
    """Raises regex.error for what is no regular expression."""
    import regex

    flags = regex.MULTILINE | (regex.IGNORECASE if ignore_case else 0)
    return regex.compile(pattern, flags)


def check_pattern(field: str, pattern: str) -> None:
    """Raises Contradiction for what is no regular expression."""
    import regex

    try:
        compile_pattern(pattern)
    except (regex.error, OverflowError, RecursionError, MemoryError) as error:
        message = f"is not a regular expression: {error}"
        raise Contradiction(Problem(field, pattern, message, "correct it; the syntax is that of Python's re")) from None


def find_last_match(pattern: str, text: str) -> str | None:
    """The first group of the last match, or all of it where the pattern has no group; None without a match. Raises UnusableRow after SECONDS."""
    compiled, found = compile_pattern(pattern), None
    try:
        for found in compiled.finditer(text, timeout=SECONDS):  # noqa: B007
            pass
    except TimeoutError:
        raise UnusableRow(f"the pattern took longer than {SECONDS:g} s") from None
    if found is None:
        return None
    value: str | None = found.group(1) if compiled.groups else found.group()
    return value
