"""Full text over completions and prompts: queries. The words are kept behind the ingest (``lab.rollouts.browse.indexing``).

Each row of words also has lexemes that no text and no query of a person can contain, because the parser drops a leading tilde: its run's, its
team's and its block's. One GIN scan narrows by them together with the words.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from uuid import UUID

from django.db import connection
from django.db.models.expressions import RawSQL

from lab.lib.numbers import write_id_array

BLOCK = 4096  # consecutive rollout ids in a block
KEPT = 256  # searches, of up to 500 characters, of which is kept whether they have words

# PostgreSQL's parser throws tags away, and with them <answer> and <tool_call>: in texts and in queries their brackets count as spaces.
TEXT = "translate(left({column}, %(characters)s), '<>', '  ')"
QUERY = "websearch_to_tsquery('simple', translate(%s, '<>', '  '))"

# Fenced by OFFSET: the planner must start from the index on words. Left to choose it walks rollouts and looks at the words of each.
ROLLOUTS = f"""
SELECT rollout_id FROM trajectories_rolloutwords
WHERE words @@ ({QUERY} && %s::tsquery) OFFSET 0
"""  # noqa: S608 constants only
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


@lru_cache(KEPT)
def has_words(words: str) -> bool:
    """Whether there is anything to look for in what a person wrote; kept, because it depends on nothing else."""
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT numnode({QUERY})", [words])
        return bool(cursor.fetchone()[0])


def words_among(words: str, rollouts: Sequence[int], runs: Sequence[UUID], team: int) -> set[int]:
    """Those of ``rollouts`` that have the words, looked at one by one (as a function: an operator would make it the index's turn)."""
    with connection.cursor() as cursor:
        cursor.execute(AMONG, [write_id_array(rollouts), words, build_scope_query(runs, team)])
        return {row[0] for row in cursor.fetchall()}


def prompt_matches(words: str, team: int) -> RawSQL:
    return RawSQL(PROMPTS, [words, any_of([team_lexeme(team)])])  # noqa: S611 parameters only
