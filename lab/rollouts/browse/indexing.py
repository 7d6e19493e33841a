"""The words of rollouts and their prompts into the full-text index, behind the ingest, which must not wait for it.

``index`` is a chore of every worker; an advisory lock lets one of them act. A batch of one run and the run's ``searchable_to`` are one
transaction, so that a killed worker leaves neither; each run's rollouts are indexed in the order of their ids, which is the order in which its
ingest committed them.
"""

from __future__ import annotations

import logging
import time
from typing import Any

from django.db import DataError, OperationalError, connection, transaction
from django.db.models import F

from lab.rollouts.browse.words import BLOCK, TEXT, run_lexeme, team_lexeme
from lab.training.runs.models import Run

log = logging.getLogger(__name__)

SECONDS = 2.0  # a call; the next one goes on
BATCH = 1000  # rollouts in a transaction
WINDOW = 4 * BATCH  # ids they are looked for among
NEAR = 25 * WINDOW  # ids among which the next rollout of the run is, where many runs write at once
LOCK = 0x77_6F_72_64_73
CHARACTERS = 100_000  # of a text that can be searched

ROLLOUTS = f"""
INSERT INTO trajectories_rolloutwords (rollout_id, words)
SELECT id, to_tsvector('simple', {TEXT.format(column="completion")}) || array_to_tsvector(ARRAY[%(run)s, %(team)s, '~block:' || id / %(block)s])
FROM trajectories_rollout WHERE run_id = %(run_id)s AND id > %(since)s AND id <= %(to)s
ON CONFLICT (rollout_id) DO NOTHING
"""  # noqa: S608 constants only
PROMPTS = f"""
INSERT INTO browse_promptwords (prompt_id, words)
SELECT id, to_tsvector('simple', {TEXT.format(column="text")}) || array_to_tsvector(ARRAY[%(team)s])
FROM trajectories_prompt AS prompt WHERE id IN (
    SELECT prompt_id FROM trajectories_rollout WHERE run_id = %(run_id)s AND id > %(since)s AND id <= %(to)s
) AND NOT EXISTS (SELECT 1 FROM browse_promptwords AS known WHERE known.prompt_id = prompt.id)
ON CONFLICT (prompt_id) DO NOTHING
"""  # noqa: S608 constants only
NEXT = """
SELECT max(id) FROM (
    SELECT id FROM trajectories_rollout WHERE run_id = %s AND id > %s AND id <= %s ORDER BY id LIMIT %s
) AS batch
"""
# The next rollout of a run: near by along the ids of all runs, or, fenced by OFFSET, among all of its own. Left to choose, PostgreSQL walks the ids
# of the whole lab to the first of a run that has just begun.
NEXT_NEAR = "SELECT min(id) FROM trajectories_rollout WHERE run_id = %s AND id > %s AND id <= %s"
NEXT_OF_RUN = "SELECT min(id) FROM (SELECT id FROM trajectories_rollout WHERE run_id = %s AND id > %s OFFSET 0) AS own"


def index_rollouts() -> None:
    """One round of at most about SECONDS. Raises database errors; the caller comes again."""
    until = time.monotonic() + SECONDS
    done = 0
    while time.monotonic() < until and (added := index_batch()):
        done += added
    if done:
        with connection.cursor() as cursor:  # what waits in the index's pending list is read whole by every search
            cursor.execute("SELECT gin_clean_pending_list('rollout_words')")


def index_all() -> None:
    """Until nothing is left."""
    while Run.across_teams.filter(last_rollout__gt=F("searchable_to")).exists():
        index_rollouts()


def index_batch() -> int:
    """Makes the next rollouts of one run searchable; returns how many ids it went on, 0 when there is nothing to do or another worker does it."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_xact_lock(%s)", [LOCK])
        if not cursor.fetchone()[0]:
            return 0
        # The newest first: what a person looks at while it trains must not wait for the backlog of old runs.
        run = Run.across_teams.filter(last_rollout__gt=F("searchable_to")).order_by("-last_rollout").first()
        if run is None:
            return 0
        since, to = run.searchable_to, end_of_batch(cursor, run)
        add_words(cursor, run, since, to)
        Run.objects.same_row(run).filter(searchable_to=since).update(searchable_to=to)
        return to - since


def end_of_batch(cursor: Any, run: Run) -> int:
    """Up to which id the next batch goes."""
    since, last = run.searchable_to, run.last_rollout
    cursor.execute(NEXT, [run.pk, since, min(since + WINDOW, last), BATCH])
    end = cursor.fetchone()[0]
    if end is None:  # other runs have written in between: on to the first id that is the run's
        first = find_next_rollout(cursor, run)
        if first is None:
            return last
        cursor.execute(NEXT, [run.pk, first - 1, min(first + WINDOW, last), BATCH])
        end = cursor.fetchone()[0]
    return min(int(end), last)


def find_next_rollout(cursor: Any, run: Run) -> int | None:
    """The id of the run's first rollout that is not searchable yet; None where it has none any more."""
    cursor.execute(NEXT_NEAR, [run.pk, run.searchable_to, run.searchable_to + NEAR])
    first = cursor.fetchone()[0]
    if first is None:
        cursor.execute(NEXT_OF_RUN, [run.pk, run.searchable_to])
        first = cursor.fetchone()[0]
    return first


def add_words(cursor: Any, run: Run, since: int, to: int, characters: int = CHARACTERS) -> None:
    """A text that PostgreSQL cannot take as a whole is searchable by its beginning, and if not even that by nothing but its run."""
    asked = {"characters": characters, "run": run_lexeme(run.pk), "team": team_lexeme(run.team_id), "block": BLOCK, "run_id": run.pk}
    try:
        with transaction.atomic():
            cursor.execute(ROLLOUTS, {**asked, "since": since, "to": to})
            cursor.execute(PROMPTS, {**asked, "since": since, "to": to})
    except (DataError, OperationalError) as error:
        if not too_long(error):
            raise
        if to - since > 1:
            middle = (since + to) // 2
            add_words(cursor, run, since, middle)
            add_words(cursor, run, middle, to)
        else:
            log.warning("rollout %d: only its first %d characters can be searched (%s)", to, characters // 2, str(error).strip())
            add_words(cursor, run, since, to, characters // 2)


def too_long(error: Exception) -> bool:
    """Whether a text is the reason and not the server. At no characters at all there is nothing left to refuse."""
    return getattr(error.__cause__, "sqlstate", None) in ("54000", "22001", "22P05", "22021")
