"""Walking over a selection's rollouts in its order, as fast as the indexes allow.

What keeps a page quick when the table is large:

- Inside one run everything is answered from the covering index ``rollout_listed``; texts are read for the rows of the page alone.
- Over several runs the newest ids are looked at first, then whole runs from the newest on: only a rare match costs a look at all of them.
- Words that are common are found among the first few hundred rollouts of the order; only for rarer ones the full-text index is asked, newest
  first block by block, so that the cost depends on the page and not on the table.
- The first page and its count are one query wherever what is counted has to be looked at for the page anyway.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any
from uuid import UUID

from django.core.exceptions import EmptyResultSet
from django.db import connection
from django.db.models import BooleanField, F, QuerySet
from django.db.models.expressions import RawSQL

from lab.lib.numbers import write_id_array
from lab.rollouts.browse.conditions import filter_structured_rollouts, runs_of
from lab.rollouts.browse.order import Key, Order
from lab.rollouts.browse.selection import Selection
from lab.rollouts.browse.words import BLOCK, WordPlan, any_of, block_lexeme, plan_word_search, planned_matches, words_among
from lab.rollouts.trajectories.models import Rollout
from lab.teams.accounts.models import Team
from lab.training.runs.models import Run

WINDOW = 8192  # newest ids that are looked at before whole runs are
PROBED_FIRST, PROBED = 200, 1500  # rollouts whose words are looked at one by one before the full-text index is asked: at first, at most
MARGIN = 1.3  # how much further is looked than the first ones promise, for words that become rarer
PROBE_LIMIT = 100  # for longer stretches than this the index is asked at once
SPANS = (1, 4, 16, 64)  # blocks of newest rollouts that are searched together, one after the other; then all the rest
COUNTED_TO = 1000  # rollouts of a selection, and then "1000+"
BLOCK_COST = 200  # matches of the words in all rollouts that are read in the time that one block more takes
FREQUENT = 100  # matches in the newest block from which on a run is gone through in its own order for a page of them
COMMON = 1 / 12  # share of the newest rollouts, where the run has to be sorted before it can be gone through
CANDIDATES = 2000  # matches of the words that are looked at to count
LOOKUP_COST = 200  # rollouts of a run that are read from its index in the time that one takes to be found in the table by its id


@dataclass(frozen=True)
class Walk:
    team: Team
    selection: Selection
    runs: list[Run]
    order: Order
    found: dict[int, list[int]] = field(default_factory=dict, init=False, compare=False)  # what ``find_matches`` has asked

    @classmethod
    def of(cls, team: Team, selection: Selection, runs: list[Run] | None = None) -> Walk:
        """``runs``: those of the selection where they are known already, as ``runs_of`` gives them."""
        runs = runs_of(team, selection) if runs is None else runs
        return cls(team, selection, runs, Order.of(selection, len(runs)))

    @cached_property
    def rows(self) -> QuerySet[Rollout]:
        """What the filters leave, keyed for ``order``; the words are not in it. A bare selection of hundreds of runs is answered without."""
        return self.order.keyed(filter_structured_rollouts(self.team, self.selection, self.runs))

    def keys(self, key: Key | None, backwards: bool, limit: int) -> list[Key]:
        """The first ``limit`` keys after ``key``, or going back from it, nearest first."""
        if not self.runs:
            return []
        if not self.selection.words:
            return self.without_words(key, backwards, limit)
        if self.reads_newest_matches and key is None:
            return self.read_newest_matches(limit)
        if limit <= PROBE_LIMIT and not self.starts_from_matches and (probed := self.probe(key, backwards, limit)) is not None:
            return probed
        if self.by_arrival and not backwards:
            return self.block_by_block(key, limit)
        if self.has_few_matches:
            return self.fetch_among(self.find_matches(), key, backwards, limit)
        return self.fetch(self.rows.filter(pk__in=self.matches()), key, backwards, limit)

    @property
    def has_few_matches(self) -> bool:
        return len(self.find_matches()) < CANDIDATES

    @property
    def expects_many_matches(self) -> bool:
        """Whether the rollouts would have more matches than are looked at one by one if all had as many as the newest ones."""
        return self.share_near * self.stored > CANDIDATES

    @property
    def share_near(self) -> float:
        """The share of the newest ids that have the words; other runs may have some of these ids, so that it is rather too small than too large."""
        newest = self.runs[0].last_rollout
        return len(self.find_matches(1)) / max(newest - self.near_ids.start, 1)

    @cached_property
    def stored(self) -> int:
        """The rollouts of the runs, whatever the filters leave."""
        return sum(run.rollouts for run in self.runs)

    @cached_property
    def near_ids(self) -> range:
        """The ids among which ``find_matches(1)`` looks."""
        newest = self.runs[0].last_rollout // BLOCK
        return range(max(0, newest - 1) * BLOCK, (newest + 1) * BLOCK)

    @property
    def starts_from_matches(self) -> bool:
        """The words are so rare that their matches are sorted sooner than enough of them are met in the order of the list."""
        if self.by_arrival:
            return False
        return self.share_near < COMMON if self.order.field else len(self.find_matches(1)) < FREQUENT and self.has_few_matches

    @cached_property
    def is_bare(self) -> bool:
        """Whether a rollout of the runs that has the words is in the selection, whatever else it is: nothing has to be read of it."""
        if self.selection.filters:
            return False
        if self.selection.tries:
            return True
        with connection.cursor() as cursor:
            cursor.execute(SUPERSEDED, [[run.pk for run in self.runs]])
            return not cursor.fetchone()[0]

    @property
    def reads_newest_matches(self) -> bool:
        """The words are in the newest block, not so often that the index is slower than a look at the newest rollouts, and nothing else is asked."""
        return self.by_arrival and self.is_bare and len(self.find_matches(1)) < CANDIDATES

    def read_newest_matches(self, limit: int) -> list[Key]:
        """The first ``limit`` keys by id descending, of a bare selection."""
        near = self.find_matches(1)
        if len(near) < limit and self.expects_many_matches:
            near = self.find_matches(SPANS[1])
        if not limit <= len(near) < CANDIDATES:
            if self.expects_many_matches or not self.has_few_matches:
                return self.block_by_block(None, limit)
            near = self.find_matches()  # so few that the count will ask for all of them
        return [(pk,) for pk in sorted(near, reverse=True)[:limit]]

    def read_first(self, limit: int, most: int) -> tuple[list[Key], int, bool]:
        """The first ``limit`` keys, how many rollouts there are and whether that is all, as ``count`` tells it."""
        if self.runs and not self.by_arrival and (not self.selection.words or self.starts_from_matches):
            keys, number = self.read_matches(limit) if self.selection.words else self.read_up_to(most + 1, limit)
            if number > most and self.order.field and not self.selection.words:  # the rest of the run may come first
                keys = self.keys(None, False, limit)
            return keys, min(number, most), number <= most
        keys = self.keys(None, False, limit)
        return keys, *(self.count(most) if len(keys) == limit else (len(keys), True))

    def read_up_to(self, most: int, limit: int) -> tuple[list[Key], int]:
        """The first keys of up to ``most`` rollouts, of more than that in the order of the index, and how many these are; without the words."""
        rows = self.rows.order_by() if self.order.field else self.order.sorted(self.rows)
        return self.ask_with_count("({rows})", rows.values_list(*self.order.columns)[:most], limit)

    def read_matches(self, limit: int) -> tuple[list[Key], int]:
        """The first keys of the rollouts with the words, and how many there are."""
        rows = self.rows.order_by()
        if not self.expects_many_matches and self.has_few_matches:
            ids = self.find_matches()
            if len(ids) * LOOKUP_COST < self.stored:
                return self.ask_with_count(MATCHED, rows.filter(SAME_ROLLOUT).values_list(*self.order.columns), limit, before=[write_id_array(ids)])
            return self.ask_with_count(OF_RUN, rows.values_list(*self.order.columns), limit, after=[write_id_array(ids)])
        return self.ask_with_count("({rows})", rows.filter(pk__in=self.matches()).values_list(*self.order.columns), limit)

    def ask_with_count(
        self, hits: str, rows: QuerySet[Any, Any], limit: int, before: Sequence[Any] = (), after: Sequence[Any] = ()
    ) -> tuple[list[Key], int]:
        """The first ``limit`` keys of ``hits``, a query around ``rows`` with the parameters ``before`` and ``after`` theirs, and their number."""
        query = f"SELECT hits.*, count(*) OVER () FROM {hits} AS hits ORDER BY {self.order.by_position(False)} LIMIT %s"  # noqa: S608 constants only
        rows_with_count = execute_around(query, before, rows, [*after, limit])
        return [row[:-1] for row in rows_with_count], rows_with_count[0][-1] if rows_with_count else 0

    def probe(self, key: Key | None, backwards: bool, limit: int) -> list[Key] | None:
        """The keys, found by looking at the words of one rollout after the other; None where the words are too rare for that. The newest
        rollouts, or the first few, tell how far one has to look.
        """
        matches: list[Key] = []
        near: list[Key] = []
        seen, size = 0, self.choose_probe_size(limit)
        while seen < size:
            if len(near) < size:  # what is sorted a second time costs the same however little of it is wanted
                near = self.without_words(key, backwards, PROBED if self.order.field and seen else size)
            known = self.find_words_among([one[-1] for one in near[seen:size]])
            matches += [one for one in near[seen:size] if one[-1] in known]
            if len(matches) >= limit or len(near) < size:
                return matches[:limit]
            needed = MARGIN * limit * size / len(matches) if matches else math.inf
            seen, size = size, math.ceil(needed) if needed <= PROBED else 0
        return None

    def choose_probe_size(self, limit: int) -> int:
        """How many rollouts to look at first."""
        if not self.found.get(1):
            return PROBED_FIRST
        return max(PROBED_FIRST, min(PROBED, math.ceil(MARGIN * limit / self.share_near)))

    def find_words_among(self, ids: Sequence[int]) -> set[int]:
        """Those of ``ids`` that have the words. Of the newest it is known where all matches among them were found; the others are looked at."""
        near = set(self.found.get(1, ()))
        known = self.near_ids if 1 in self.found and len(near) < CANDIDATES else range(0)
        older = [pk for pk in ids if pk not in known]
        return near.intersection(ids) | (words_among(self.selection.words, older, *self.scope) if older else set())

    @property
    def by_arrival(self) -> bool:
        return self.order.columns == ("pk",)

    def matches(self, extra: str = "") -> RawSQL:
        return planned_matches(
            self.selection.words, self.word_plan, *self.scope, extra, check_scope=self.word_plan.is_rare and self.has_most_rollouts
        )

    @cached_property
    def word_plan(self) -> WordPlan:
        return plan_word_search(self.selection.words)

    @cached_property
    def has_most_rollouts(self) -> bool:
        """Whether the selection is of the whole team and at least half of all rollouts in the lab are the team's."""
        if self.selection.runs:
            return False
        with connection.cursor() as cursor:
            cursor.execute(LAST_ID)
            return bool(2 * self.stored >= cursor.fetchone()[0])

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
        keys: list[Key] = []
        for window in sorted({min(4 * limit, WINDOW), WINDOW}):
            if len(keys) < limit:
                rest = top - window
                keys = self.fetch(self.rows.filter(pk__gte=rest), (top,), False, limit)
        for group, newest_of_others in iterate_run_groups(self.runs):
            if len(keys) >= limit and keys[limit - 1][0] > min(rest, newest_of_others):
                break
            if rest > 0:
                older = self.rows.filter(run_id__in=[run.pk for run in group])
                keys = sorted({*keys, *self.fetch(older, (rest,), False, limit)}, reverse=True)[:limit]
        return keys[:limit]

    def block_by_block(self, key: Key | None, limit: int) -> list[Key]:
        """By id descending, from the full-text index, stretch by stretch."""
        top = key[0] if key else self.runs[0].last_rollout + 1
        keys: list[Key] = []
        block = (top - 1) // BLOCK
        for span in SPANS:
            if block < 0 or len(keys) >= limit:
                return keys[:limit]
            keys += self.fetch_matching(self.blocks(block, span), top, limit - len(keys))
            block -= span
            top = min(top, (block + 1) * BLOCK)
        if block >= 0 and len(keys) < limit:
            keys += self.fetch_matching("", top, limit - len(keys))
        return keys

    def fetch_matching(self, extra: str, top: int, limit: int) -> list[Key]:
        """By id descending, the keys below ``top`` of rollouts with the words and the lexemes ``extra``."""
        matches = self.matches(extra)
        if not self.is_bare:
            return self.fetch(self.rows.filter(pk__in=matches), (top,), False, limit)
        with connection.cursor() as cursor:
            cursor.execute(NEWEST.format(matches=matches.sql), [*matches.params, top, limit])
            return cursor.fetchall()

    def count(self, most: int) -> tuple[int, bool]:
        """How many rollouts there are, and whether that is all; counting stops soon after ``most``."""
        if not self.runs:
            return 0, True
        if not self.selection.words:
            number = self.rows.order_by()[: most + 1].count()
            return min(number, most), number <= most
        blocks = self.choose_counted_blocks(most)
        if blocks and self.count_near(blocks, most) > most:  # whatever else there is
            return most, False
        if self.is_bare and 0 not in self.found and most < CANDIDATES:
            number = len(self.ask_for_matches(0, most + 1))
            return min(number, most), number <= most
        number = self.count_among(self.find_matches(), most)
        return min(number, most), self.has_few_matches and number <= most

    def choose_counted_blocks(self, most: int) -> int:
        """Newest blocks that have more than ``most`` matches if all have as many as the newest one, or as many as are looked at where filters leave
        fewer; 0 where all rollouts are counted sooner, or blocks could not tell.
        """
        if not self.share_near or most >= CANDIDATES:
            return 0
        wanted = most if self.is_bare else CANDIDATES
        blocks = math.ceil(MARGIN * wanted / (self.share_near * BLOCK))
        return blocks if blocks * BLOCK < self.stored and blocks * BLOCK_COST < self.share_near * self.stored else 0

    def count_near(self, blocks: int, most: int) -> int:
        """How many rollouts of so many whole blocks, the newest, there are; counting may stop after ``most``."""
        if self.is_bare and blocks not in self.found:
            return len(self.ask_for_matches(blocks, most + 1))
        return self.count_among(self.find_matches(blocks), most)

    def find_matches(self, blocks: int = 0) -> list[int]:
        """The ids of up to CANDIDATES rollouts with the words, in no order: in so many whole blocks, the newest, or in all for 0."""
        if blocks not in self.found:
            self.found[blocks] = self.ask_for_matches(blocks, CANDIDATES)
        return self.found[blocks]

    def ask_for_matches(self, blocks: int, most: int) -> list[int]:
        newest = self.runs[0].last_rollout // BLOCK  # hardly begun perhaps, and then it tells nothing about the words: one more
        matches = self.matches(self.blocks(newest, blocks + 1) if blocks else "")
        with connection.cursor() as cursor:
            cursor.execute(FIND.format(matches=matches.sql), [*matches.params, most])
            found: list[int] = cursor.fetchone()[0]
        return found

    def fetch_among(self, ids: Sequence[int], key: Key | None, backwards: bool, limit: int) -> list[Key]:
        """As ``fetch``, of the rollouts with these ids."""
        rows = self.order.beyond(self.rows, key, backwards) if key else self.rows
        rows = rows.order_by().filter(SAME_ROLLOUT)
        query = KEYS.format(order=self.order.by_position(backwards), rows="{rows}")
        return execute_around(query, [write_id_array(ids)], rows.values_list(*self.order.columns), [limit])

    def count_among(self, ids: Sequence[int], most: int) -> int:
        """How many of the ids are of rollouts that the filters leave; counting may stop after ``most``."""
        if self.is_bare:
            return len(ids)
        rows = self.rows.order_by().filter(SAME_ROLLOUT).values_list("pk")
        return sum(count for (count,) in execute_around(COUNT, [write_id_array(ids)], rows, [most + 1]))

    @staticmethod
    def blocks(newest: int, count: int) -> str:
        """A tsquery for ``count`` blocks up to the newest."""
        return any_of([block_lexeme(number) for number in range(max(0, newest - count + 1), newest + 1)])


# In two steps, because the planner may know of the limit only in the second: it would hope to meet enough matches at the table's old end.
FIND = """
WITH matches AS MATERIALIZED ({matches})
SELECT coalesce(array_agg(rollout_id), '{{}}') FROM (SELECT rollout_id FROM matches LIMIT %s) AS found
"""

LAST_ID = "SELECT last_value FROM trajectories_rollout_id_seq"  # at least as many as there are rollouts
SUPERSEDED = "SELECT EXISTS (SELECT 1 FROM trajectories_rollout WHERE run_id = ANY(%s) AND superseded)"
NEWEST = "SELECT rollout_id FROM ({matches}) AS found WHERE rollout_id < %s ORDER BY rollout_id DESC LIMIT %s"

# One rollout after the other by its id (LATERAL, fenced), which is quicker than going through the run for a few of its rollouts.
AMONG = "unnest(%s::bigint[]) AS found(rollout_id), LATERAL ({rows} OFFSET 0) AS rollout"
MATCHED = f"(SELECT rollout.* FROM {AMONG})"  # noqa: S608 constants only
# Or all of the run from its index, and those of them: OFFSET keeps the ids out of there, which would lead to the table. As a condition, for which
# PostgreSQL hashes the few ids; as a join it hashes the run, which takes longer than to read it.
OF_RUN = "(SELECT rollout.* FROM ({rows} OFFSET 0) AS rollout WHERE rollout.pk = ANY(%s::bigint[]))"
KEYS = f"SELECT rollout.* FROM {AMONG} ORDER BY {{order}} LIMIT %s"  # noqa: S608 constants only
COUNT = f"SELECT count(*) FROM (SELECT 1 FROM {AMONG} LIMIT %s) AS counted"  # noqa: S608 constants only
SAME_ROLLOUT = RawSQL('"trajectories_rollout"."id" = found.rollout_id', [], output_field=BooleanField())


def execute_around(query: str, before: Sequence[Any], rows: QuerySet[Any, Any], after: Sequence[Any]) -> list[Key]:
    """The answer to ``query``, which has ``rows`` in it: their SQL, with the parameters ``before`` in front of theirs and ``after`` behind."""
    try:
        sql, params = rows.query.sql_with_params()
    except EmptyResultSet:
        return []
    with connection.cursor() as cursor:
        cursor.execute(query.format(rows=sql), [*before, *params, *after])
        return cursor.fetchall()


def iterate_run_groups(runs: Sequence[Run]) -> Iterator[tuple[Sequence[Run], int]]:
    """Groups of 1, 2, 4, … runs, each with the newest rollout id of all runs from this group on."""
    start, size = 0, 1
    while start < len(runs):
        yield runs[start : start + size], runs[start].last_rollout
        start, size = start + size, size * 2
