"""Where in its completion a search found each rollout of a page: what the table marks, and shows when it stands in neither end."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from django.db import DataError, connection

from lab.lib.numbers import write_id_array
from lab.rollouts.browse.regex import TooSlow, limit_statement_time
from lab.rollouts.browse.selection import Selection
from lab.rollouts.browse.words import write_tsquery

BEFORE, AROUND = 4, 120  # characters before the match, and in all
MOST_MARKED = 80  # characters of a match
SECONDS = 0.5  # for a regular expression: what takes longer is not marked
LEXEME = re.compile(r"(!)?'((?:[^'\\]|''|\\.)+)'")

# What matched has been checked already; here is only where. The rollouts are those of the page, which the team's selection gave.
PLACES = """
SELECT id, regexp_substr(substr(completion, first, %(most)s), %(sought)s), substr(completion, greatest(first - %(before)s, 1), %(around)s)
FROM (
    SELECT id, completion, regexp_instr(completion, %(sought)s) AS first
    FROM trajectories_rollout WHERE id = ANY(%(ids)s::bigint[]) OFFSET 0
) AS place
WHERE first > 0
"""


@dataclass(frozen=True, slots=True)
class Found:
    """``around``: the text where the match stands. ``pattern``: what is marked."""

    around: str
    pattern: re.Pattern[str]

    def is_in(self, text: str) -> bool:
        return self.pattern.search(text) is not None


def find_matches(selection: Selection, rollouts: Sequence[int]) -> dict[int, Found]:
    """By the id of the rollout; without those whose words stand otherwise in the text than in the index."""
    if not rollouts or not (selection.words or selection.pattern):
        return {}
    words = () if selection.pattern else read_sought_words(selection.words)
    if not selection.pattern and not words:
        return {}
    sought = selection.pattern or rf"(?i)\m(?:{'|'.join(map(re.escape, words))})\M"
    asked: dict[str, str | int] = {"ids": write_id_array(rollouts), "before": BEFORE, "around": AROUND, "most": MOST_MARKED, "sought": sought}
    try:
        with limit_statement_time(SECONDS), connection.cursor() as cursor:
            cursor.execute(PLACES, asked)
            rows = cursor.fetchall()
    except (TooSlow, DataError):  # the page says what is wrong with the expression
        return {}
    return {pk: Found(around, compile_words(words or (match,), whole=bool(words))) for pk, match, around in rows if match}


def read_sought_words(words: str) -> tuple[str, ...]:
    """The words that PostgreSQL reads in a search, without those that must not be there; longest first."""
    sought = {match[2].replace("''", "'").replace("\\\\", "\\") for match in LEXEME.finditer(write_tsquery(words)) if not match[1]}
    return tuple(sorted(sought, key=lambda word: (-len(word), word)))


@lru_cache(256)
def compile_words(words: tuple[str, ...], *, whole: bool) -> re.Pattern[str]:
    either = "|".join(map(re.escape, words))
    return re.compile(rf"(?<!\w)(?:{either})(?!\w)" if whole else either, re.IGNORECASE if whole else 0)
