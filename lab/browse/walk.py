"""Walking over a selection's rollouts in its order, as fast as the indexes allow.

What keeps a page quick when the table is large:

- Inside one run everything is answered from the covering index ``rollout_listed``; texts are read for the rows of the page alone.
- Over several runs the newest ids are looked at first, then whole runs from the newest on: only a rare match costs a look at all of them.
- Words that are common are found among the first few hundred rollouts of the order; only for rarer ones the full-text index is asked, newest
  first block by block, so that the cost depends on the page and not on the table.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.core.exceptions import EmptyResultSet
from django.db import connection
from django.db.models import BooleanField, F, QuerySet
from django.db.models.expressions import RawSQL

from lab.accounts.models import Team
from lab.browse.conditions import runs_of, structured
from lab.browse.order import Key, Order
from lab.browse.selection import Selection
from lab.browse.words import BLOCK, any_of, block_lexeme, rollout_matches, words_among
from lab.runs.models import Run
from lab.trajectories.models import Rollout

WINDOW = 8192  # newest ids that are looked at before whole runs are
PROBED = 1500  # rollouts whose words are looked at one by one before the full-text index is asked
PROBE_LIMIT = 100  # for longer stretches than this the index is asked at once
SPANS = (1, 4, 16, 64)  # blocks of newest rollouts that are searched together, one after the other; then all the rest
COUNTED_BLOCKS = 16  # newest blocks in which matches are counted before all are
CANDIDATES = 2000  # matches of the words that are looked at to count


@dataclass(frozen=True)
class Walk:
    """``rows``: what the filters leave, keyed for ``order``; the words are not in it."""

    team: Team
    selection: Selection
    runs: list[Run]
    order: Order
    rows: QuerySet[Rollout]

    @classmethod
    def of(cls, team: Team, selection: Selection) -> Walk:
        runs = runs_of(team, selection)
        order = Order.of(selection, len(runs))
        return cls(team, selection, runs, order, order.keyed(structured(team, selection, [run.pk for run in runs])))

    def keys(self, key: Key | None, backwards: bool, limit: int) -> list[Key]:
        """The first ``limit`` keys after ``key``, or going back from it, nearest first."""
        if not self.runs:
            return []
        if not self.selection.words:
            return self.without_words(key, backwards, limit)
        if limit <= PROBE_LIMIT:
            near = self.without_words(key, backwards, PROBED)
            known = words_among(self.selection.words, [one[-1] for one in near], *self.scope)
            found = [one for one in near if one[-1] in known]
            if len(found) >= limit or len(near) < PROBED:
                return found[:limit]
        if self.by_arrival and not backwards:
            return self.block_by_block(key, limit)
        return self.fetch(self.rows.filter(pk__in=self.matches()), key, backwards, limit)

    @property
    def by_arrival(self) -> bool:
        return self.order.columns == ("pk",)

    def matches(self, extra: str = "") -> RawSQL:
        return rollout_matches(self.selection.words, *self.scope, extra)

    @property
    def scope(self) -> tuple[list[UUID], int]:
        return [run.pk for run in self.runs], 0 if self.selection.runs else self.team.pk

    def fetch(self, rows: QuerySet[Rollout], key: Key | None, backwards: bool, limit: int) -> list[Key]:
        rows = self.order.sorted(self.order.beyond(rows, key, backwards) if key else rows, backwards)
        if self.by_arrival:  # an expression, or the planner walks the primary key and reads rollouts until it has met enough that match
            place = F("pk") + 0
            rows = rows.order_by(place.asc() if backwards else place.desc())
        return list(rows.values_list(*self.order.columns)[:limit])

    def without_words(self, key: Key | None, backwards: bool, limit: int) -> list[Key]:
        if not self.by_arrival:
            return self.fetch(self.rows, key, backwards, limit)
        if not (key and backwards):
            return self.newest_of_many(key, limit)
        near = self.fetch(self.rows.filter(pk__lte=key[0] + WINDOW), key, backwards, limit)
        return near if len(near) == limit else self.fetch(self.rows, key, backwards, limit)

    def newest_of_many(self, key: Key | None, limit: int) -> list[Key]:
        """By id descending: a window of ids, then runs in the order of their newest rollout until no other can have newer ones."""
        top = key[0] if key else self.runs[0].last_rollout + 1
        found: list[Key] = []
        for window in sorted({min(4 * limit, WINDOW), WINDOW}):
            if len(found) < limit:
                rest = top - window
                found = self.fetch(self.rows.filter(pk__gte=rest), (top,), False, limit)
        for group, newest_of_others in widening(self.runs):
            if len(found) >= limit and found[limit - 1][0] > min(rest, newest_of_others):
                break
            if rest > 0:
                older = self.rows.filter(run_id__in=[run.pk for run in group])
                found = sorted({*found, *self.fetch(older, (rest,), False, limit)}, reverse=True)[:limit]
        return found[:limit]

    def block_by_block(self, key: Key | None, limit: int) -> list[Key]:
        """By id descending, from the full-text index, stretch by stretch."""
        top = key[0] if key else self.runs[0].last_rollout + 1
        found: list[Key] = []
        block = (top - 1) // BLOCK
        for span in SPANS:
            if block < 0 or len(found) >= limit:
                return found[:limit]
            matches = self.matches(self.blocks(block, span))
            found += self.fetch(self.rows.filter(pk__in=matches), (top,), False, limit - len(found))
            block -= span
            top = min(top, (block + 1) * BLOCK)
        if block >= 0 and len(found) < limit:
            found += self.fetch(self.rows.filter(pk__in=self.matches()), (top,), False, limit - len(found))
        return found

    def count(self, most: int) -> tuple[int, bool]:
        """How many rollouts there are, and whether that is all; counting stops soon after ``most``."""
        if not self.runs:
            return 0, True
        rows = self.rows.order_by()
        if not self.selection.words:
            number = rows[: most + 1].count()
            return min(number, most), number <= most
        try:
            inside, inside_params = rows.filter(SAME_ROLLOUT).values("pk").query.sql_with_params()
        except EmptyResultSet:
            return 0, True
        if not self.selection.runs:  # in a large team the newest blocks tell whether there are many, whatever else there is
            newest = self.runs[0].last_rollout // BLOCK
            recent = self.count_matches(self.matches(self.blocks(newest, COUNTED_BLOCKS)), inside, inside_params)
            if recent[1] > most:
                return most, False
        looked_at, number = self.count_matches(self.matches(), inside, inside_params)
        return min(number, most), looked_at < CANDIDATES and number <= most

    def count_matches(self, matches: RawSQL, rows: str, params: Sequence[Any]) -> tuple[int, int]:
        """How many matches of the words were looked at, and how many of them are among ``rows``."""
        with connection.cursor() as cursor:
            cursor.execute(COUNT.format(candidates=matches.sql, rows=rows), [*matches.params, CANDIDATES, *params])
            looked_at, number = cursor.fetchone()
        return looked_at, number

    @staticmethod
    def blocks(newest: int, count: int) -> str:
        """A tsquery for ``count`` blocks up to the newest."""
        return any_of([block_lexeme(number) for number in range(max(0, newest - count + 1), newest + 1)])


# Two steps, because the planner may know of the limit only in the second: it would hope to meet enough matches at the table's old end. Then one
# rollout after the other by its id (LATERAL, fenced), which is quicker than going through the run for a few of its rollouts.
COUNT = """
WITH matches AS MATERIALIZED ({candidates}), found AS MATERIALIZED (SELECT rollout_id FROM matches LIMIT %s)
SELECT (SELECT count(*) FROM found), (SELECT count(*) FROM found, LATERAL ({rows} OFFSET 0) AS rollout)
"""
SAME_ROLLOUT = RawSQL('"trajectories_rollout"."id" = found.rollout_id', [], output_field=BooleanField())


def widening(runs: Sequence[Run]) -> Iterator[tuple[Sequence[Run], int]]:
    """Groups of 1, 2, 4, … runs, each with the newest rollout id of all runs from this group on."""
    start, size = 0, 1
    while start < len(runs):
        yield runs[start : start + size], runs[start].last_rollout
        start, size = start + size, size * 2
