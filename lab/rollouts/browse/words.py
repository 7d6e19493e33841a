"""Full text over completions and prompts: queries. The words are kept behind the ingest (``lab.rollouts.browse.indexing``).

Each row of words also has lexemes that no text and no query of a person can contain, because the parser drops a leading tilde: its run's, its
team's and its block's. One GIN scan narrows by them together with the words. What most rollouts have (a word, or the team that ran them) is
not asked of the index where the rest is rare, but checked in the rows that this finds: the index would look up each of them in a list of nearly
all rollouts.
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
ROLLOUTS = f"""
SELECT rollout_id FROM trajectories_rolloutwords
WHERE words @@ ({QUERY} && %s::tsquery) OFFSET 0
"""  # noqa: S608 constants only
# As a function, which is no condition for the index.
ROLLOUTS_CHECKED = f"""
SELECT rollout_id FROM trajectories_rolloutwords
WHERE words @@ %s::tsquery AND ts_match_vq(words, {QUERY} && %s::tsquery) OFFSET 0
"""  # noqa: S608 constants only
STORED = "SELECT reltuples FROM pg_class WHERE oid = 'trajectories_rolloutwords'::regclass"
EXPECTED = "EXPLAIN (FORMAT JSON) SELECT FROM trajectories_rolloutwords WHERE words @@ %s::tsquery"
AMONG = f"SELECT rollout_id FROM trajectories_rolloutwords WHERE rollout_id = ANY(%s::bigint[]) AND ts_match_vq(words, {QUERY} && %s::tsquery)"  # noqa: S608 constants only
PROMPTS = f"""
SELECT prompt_id FROM browse_promptwords
WHERE words @@ ({QUERY} && %s::tsquery) OFFSET 0
"""  # noqa: S608 constants only


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
    """A subquery of the ids of rollouts with those words, in websearch syntax, in the team (when given) or in ``runs``."""
    return RawSQL(ROLLOUTS, [words, " & ".join(filter(None, (build_scope_query(runs, team), extra)))])  # noqa: S611 parameters only


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
    indexed = " & ".join(filter(None, (plan.indexed, extra, "" if check_scope else scope)))
    return RawSQL(ROLLOUTS_CHECKED, [indexed, words, scope])  # noqa: S611 parameters only


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
    return RawSQL(PROMPTS, [words, any_of([team_lexeme(team)])])  # noqa: S611 parameters only
