"""Full text over completions and prompts: queries. The words are kept behind the ingest (``lab.rollouts.browse.indexing``).

Each row of words also has lexemes that no text and no query of a person can contain, because the parser drops a leading tilde: its run's, its
team's and its block's. One GIN scan narrows by them together with the words. Each is a condition of its own, not a part of one tsquery: between
conditions the scan skips to the next rollout that can fulfil both, inside one it looks at every rollout of a block or a run (a word in 64 blocks of
10,000,000 rollouts: 5 for 100 ms). What most rollouts have (a word, or the team that ran them) is not asked of the index where the rest is rare, but
checked in the rows that this finds: the index would look up each of them in a list of nearly all rollouts.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from uuid import UUID

from django.db import connection
from django.db.models.expressions import RawSQL

from lab.lib.numbers import write_id_array

BLOCK = 4096  # consecutive rollout ids in a block
KEPT = 256  # searches, of up to 500 characters, of which is kept what PostgreSQL reads in them
ONE_BY_ONE = 8  # lexemes of a search that the planner is asked about
COMMON_WORD = 0.5  # share of the rollouts from which a word is left to the rows that rarer ones find
RARE_WORDS = 0.05  # share of the rollouts up to which checking the team in what the words find is quicker than asking the index for both
CONJUNCTION = re.compile(r"'[^'\\]+'(?: & '[^'\\]+')*")

# PostgreSQL's parser throws tags away, and with them <answer> and <tool_call>: in texts and in queries their brackets count as spaces.
TEXT = "translate(left({column}, %(characters)s), '<>', '  ')"
QUERY = "websearch_to_tsquery('simple', translate(%s, '<>', '  '))"

# Fenced by OFFSET: the planner must start from the index on words. Left to choose it walks rollouts and looks at the words of each.
ROLLOUTS = "SELECT rollout_id FROM trajectories_rolloutwords WHERE {conditions} OFFSET 0"
ASKED = f"words @@ {QUERY}"
INDEXED = "words @@ %s::tsquery"
CHECKED = f"ts_match_vq(words, {QUERY} && %s::tsquery)"  # as a function, which is no condition for the index
STORED = "SELECT reltuples FROM pg_class WHERE oid = 'trajectories_rolloutwords'::regclass"
EXPECTED = "EXPLAIN (FORMAT JSON) SELECT FROM trajectories_rolloutwords WHERE words @@ %s::tsquery"
AMONG = f"SELECT rollout_id FROM trajectories_rolloutwords WHERE rollout_id = ANY(%s::bigint[]) AND ts_match_vq(words, {QUERY} && %s::tsquery)"  # noqa: S608 constants only
PROMPTS = "SELECT prompt_id FROM browse_promptwords WHERE {conditions} OFFSET 0"

Condition = tuple[str, list[str]]  # SQL and its parameters


def run_lexeme(run: UUID) -> str:
    return f"~run:{run.hex}"


def team_lexeme(team: int) -> str:
    return f"~team:{team}"


def block_lexeme(block: int) -> str:
    return f"~block:{block}"


def any_of(lexemes: Sequence[str]) -> str:
    """A tsquery that wants one of the lexemes."""
    return "(" + " | ".join(f"'{lexeme}'" for lexeme in lexemes) + ")"


def build_scope_query(runs: Sequence[UUID], team: int) -> str:
    """The tsquery of a team (when given) or of some runs."""
    return any_of([team_lexeme(team)] if team else [run_lexeme(run) for run in runs] or ["~none"])


def rollout_matches(words: str, runs: Sequence[UUID], team: int, extra: str = "") -> RawSQL:
    """A subquery of the ids of rollouts with those words, in websearch syntax, in the team (when given) or in ``runs``, and with the lexemes of
    ``extra``. What has no word narrows nothing.
    """
    return build_subquery(ROLLOUTS, [*build_word_conditions(words), *build_index_conditions(build_scope_query(runs, team), extra)])


def build_word_conditions(words: str) -> list[Condition]:
    return [(ASKED, [words])] if has_words(words) else []


def build_index_conditions(*queries: str) -> list[Condition]:
    """A condition for the index of each tsquery that asks for something."""
    return [(INDEXED, [query]) for query in queries if query]


def build_subquery(query: str, conditions: Sequence[Condition]) -> RawSQL:
    sql = query.format(conditions=" AND ".join(sql for sql, _ in conditions))
    return RawSQL(sql, [given for _, some in conditions for given in some])  # noqa: S611 parameters only


@dataclass(frozen=True)
class WordPlan:
    """What of a search the index is asked for: ``indexed``, a tsquery; ``is_rare``: that is in so few rollouts that whatever else is asked is
    better checked in the rows; ``is_whole``: nothing of the search is left out.
    """

    indexed: str = ""
    is_rare: bool = False
    is_whole: bool = True


def plan_word_search(words: str) -> WordPlan:
    """By the statistics of the table, for searches that want some words and nothing else; any other is the index's as it is written."""
    query = write_tsquery(words)
    lexemes = query.split(" & ") if CONJUNCTION.fullmatch(query) else []
    if not 0 < len(lexemes) <= ONE_BY_ONE:
        return WordPlan()
    shares = estimate_shares([query] if len(lexemes) == 1 else [*lexemes, query])
    indexed = [lexeme for lexeme, share in zip(lexemes, shares, strict=False) if share < COMMON_WORD]
    return WordPlan(" & ".join(indexed), bool(indexed) and shares[-1] <= RARE_WORDS, len(indexed) == len(lexemes))


def estimate_shares(queries: Sequence[str]) -> list[float]:
    """The share of all rollouts that the planner expects each tsquery to match; above 1 for a table without statistics."""
    with connection.cursor() as cursor:
        cursor.execute(STORED)
        stored = cursor.fetchone()[0]
        expected = []
        for query in queries:
            cursor.execute(EXPECTED, [query])
            expected.append(cursor.fetchone()[0][0]["Plan"]["Plan Rows"])
    return [count / max(stored, 1) for count in expected]


def planned_matches(words: str, plan: WordPlan, runs: Sequence[UUID], team: int, extra: str, *, check_scope: bool) -> RawSQL:
    """As ``rollout_matches``, by a plan. ``check_scope``: of rare words the team or the runs, too, are checked in the rows."""
    if not plan.is_rare or (plan.is_whole and not check_scope):
        return rollout_matches(words, runs, team, extra)
    scope = build_scope_query(runs, team)
    return build_subquery(ROLLOUTS, [*build_index_conditions(plan.indexed, extra, "" if check_scope else scope), (CHECKED, [words, scope])])


@lru_cache(KEPT)
def write_tsquery(words: str) -> str:
    """What PostgreSQL reads in what a person wrote, "" where that is no word; kept, because it depends on nothing else."""
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT ({QUERY})::text", [words])
        return str(cursor.fetchone()[0])


def has_words(words: str) -> bool:
    """Whether there is anything to look for."""
    return bool(write_tsquery(words))


def words_among(words: str, rollouts: Sequence[int], runs: Sequence[UUID], team: int) -> set[int]:
    """Those of ``rollouts`` that have the words, looked at one by one (as a function: an operator would make it the index's turn)."""
    with connection.cursor() as cursor:
        cursor.execute(AMONG, [write_id_array(rollouts), words, build_scope_query(runs, team)])
        return {row[0] for row in cursor.fetchall()}


def prompt_matches(words: str, team: int) -> RawSQL:
    """A subquery of the ids of the team's prompts with those words; what has no word narrows nothing."""
    return build_subquery(PROMPTS, [*build_word_conditions(words), *build_index_conditions(any_of([team_lexeme(team)]))])
