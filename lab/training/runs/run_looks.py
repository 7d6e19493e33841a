"""What the sockets of run pages ask the database, many of them about one run."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.db import DatabaseError

from lab.lib.clock import database_now
from lab.lib.shared_queries import SharedQuery
from lab.teams.accounts.socket_access import find_open_teams
from lab.training.runs import live
from lab.training.runs.models import Run

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class RunLook:
    """Where a run stands and up to which byte its spool is in the database."""

    state: dict[str, Any]
    ingested: int


@dataclass(frozen=True)
class MissedText:
    """A message that brings a page to the byte ``to`` of the spool, as it is sent."""

    to: int
    state: dict[str, Any]
    text: str


def find_watchable(asked: set[tuple[int, UUID]]) -> dict[tuple[int, UUID], bool]:
    """Which of these people may watch which of these runs now: a run of a team that is open to them, not in the bin."""
    opened = find_open_teams({(user_id, "runs.read") for user_id, _ in asked})
    teams = {user_id: team_ids for (user_id, _), team_ids in opened.items()}
    found = Run.objects.filter(team__in=frozenset().union(*teams.values()), pk__in={run_id for _, run_id in asked}, binned_at=None)
    team_of = dict(found.values_list("pk", "team_id"))
    return {(user_id, run_id): True for user_id, run_id in asked if team_of.get(run_id) in teams.get(user_id, ())}


def look_at_runs(run_ids: set[UUID]) -> dict[UUID, RunLook]:
    runs, now = list(Run.across_teams.filter(pk__in=run_ids)), database_now()
    return {run.pk: RunLook(live.describe_run_state(run, now), run.ingested) for run in runs}


def read_missed(asked: set[tuple[UUID, int]]) -> dict[tuple[UUID, int], MissedText]:
    """For each run and cursor what the page lacks; nothing where it lacks nothing, or where it cannot be read now: the poll asks again."""
    texts = {}
    for key in asked:
        try:
            message = live.catch_up(*key)
        except (DatabaseError, Run.DoesNotExist) as error:  # one run takes too long, say: no reason to leave the others waiting
            log.warning("run %s could not be caught up after %s: %s", *key, error)
            continue
        if message is not None:
            texts[key] = MissedText(message["to"], message["state"], live.encode_message(message))
    return texts


WATCHABLE = SharedQuery(find_watchable)
RUN_LOOKS = SharedQuery(look_at_runs)
MISSED = SharedQuery(read_missed)
