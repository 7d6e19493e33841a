"""A page of a selection, the neighbours of a rollout in it, and all of it."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any
from uuid import UUID

from django.db import connection

from lab.lib.numbers import write_id_array
from lab.rollouts.browse import regex
from lab.rollouts.browse.conditions import filter_matching_rollouts, runs_of
from lab.rollouts.browse.order import Key, Order, read_cursor, write_cursor
from lab.rollouts.browse.selection import Selection
from lab.rollouts.browse.walk import COUNTED_TO, Walk
from lab.rollouts.browse.words import has_words
from lab.rollouts.trajectories.models import Rollout
from lab.teams.accounts.models import Team
from lab.training.runs.models import Run
from trainers.contract.problems import Problem

__all__ = ["Count", "Examined", "Page", "SearchProgress", "filter_matching_rollouts", "find_neighbour_ids", "read_page", "runs_of", "stream_rollouts"]

CUT_AT = 300  # characters of a prompt or completion that a list needs
EXAMINABLE = 100_000  # to which the rollouts a regular expression goes through are counted
BATCH = 500
NEIGHBOUR_SECONDS, STREAM_SECONDS = 1.0, 5.0  # for a regular expression: to find a neighbour, for a batch of a stream


@dataclass(slots=True)
class ListedRollout:
    """What a list shows of a rollout, under the names that Rollout has for it; of its texts the first CUT_AT characters."""

    pk: int
    run_id: UUID
    prompt_id: int
    attempt: int
    step: int
    phase: str
    group: int
    sample: int
    rewards: dict[str, Any]
    reward: float | None
    advantage: float | None
    length: int | None
    mean_entropy: float | None
    max_entropy: float | None
    finish_reason: str
    filtered: str
    superseded: bool
    head: str
    prompt_head: str
    run: Run


@dataclass(frozen=True)
class Count:
    """``exact`` False: there are at least so many."""

    number: int
    exact: bool


@dataclass(frozen=True)
class SearchProgress:
    """``waiting``: about how many of the runs' newest rollouts a search cannot find yet."""

    waiting: int


@dataclass(frozen=True)
class Examined:
    """How far a regular expression got: ``count`` of about ``of`` rollouts; ``cursor`` goes on from there, "" at the end."""

    count: int
    of: int
    timed_out: bool
    cursor: str


@dataclass(frozen=True)
class Page:
    """``next`` and ``previous`` are cursors, "" where there is nothing further. ``runs``: those of the selection. ``problems``: what only PostgreSQL
    could tell, words or a pattern it cannot use, and that were therefore left out.
    """

    rows: list[ListedRollout]
    next: str
    previous: str
    count: Count
    runs: list[Run]
    progress: SearchProgress | None = None
    examined: Examined | None = None
    problems: tuple[Problem, ...] = ()


def read_page(team: Team, selection: Selection, size: int = 50, runs: list[Run] | None = None) -> Page:
    """``runs``: those of the selection where they are known already, as ``runs_of`` gives them."""
    if selection.words and not has_words(selection.words):
        page = read_page(team, replace(selection, words=""), size, runs)
        nothing = Problem(
            "q", selection.words, "the search contains no word", "enter letters or digits, or use a regular expression for other characters"
        )
        return replace(page, problems=(nothing, *page.problems))
    walk = Walk.of(team, selection, runs)
    progress = progress_of(walk.runs, selection)
    if selection.pattern:
        if problem := regex.find_pattern_problem(selection.pattern):
            page = read_page(team, replace(selection, pattern=""), size, walk.runs)
            return replace(page, problems=(problem,))
        return page_of_matches(walk, size, progress)
    key, backwards = read_cursor(walk.order, selection.after) or (None, False)
    keys = walk.keys(key, backwards, size + 1) if key else []
    if key is None or (backwards and len(keys) <= size):  # the first page, whole
        keys, number, exact = walk.read_first(size + 1, COUNTED_TO)
        return laid_out(walk, keys, None, False, size, Count(number, exact), progress)
    return laid_out(walk, keys, key, backwards, size, Count(*walk.count(COUNTED_TO)), progress)


def laid_out(walk: Walk, keys: list[Key], key: Key | None, backwards: bool, size: int, count: Count, progress: SearchProgress | None) -> Page:
    """The page of up to ``size`` of the keys that lie after (or before) ``key``, nearest first."""
    more, keys = len(keys) > size, keys[:size]
    if backwards:
        keys.reverse()
    after = write_cursor(walk.order, keys[-1]) if keys and (more or backwards) else ""
    before = write_cursor(walk.order, keys[0], backwards=True) if keys and (more if backwards else key) else ""
    return Page(load_page_rollouts([one[-1] for one in keys], walk.runs), after, before, count, walk.runs, progress)


def page_of_matches(walk: Walk, size: int, progress: SearchProgress | None) -> Page:
    """What a regular expression finds in the time it has; ``examined`` says how far it came."""
    pattern = walk.selection.pattern
    key, backwards = read_cursor(walk.order, walk.selection.after) or (None, False)
    search = regex.search_matching_keys(pattern, lambda last, most: walk.keys(last, backwards, most), key, size + 1)
    if backwards and search.ended and len(search.keys) <= size:
        return page_of_matches(replace(walk, selection=replace(walk.selection, after="")), size, progress)
    count = Count(min(len(search.keys), size), exact=search.ended and not key)
    page = laid_out(walk, search.keys, key, backwards, size, count, progress)
    reached = write_cursor(walk.order, search.last, backwards) if search.timed_out and search.last else ""
    of = sum(run.rollouts for run in walk.runs) if not walk.selection.filters and not walk.selection.words else walk.count(EXAMINABLE)[0]
    return replace(page, examined=Examined(search.examined, max(of, search.examined), search.timed_out, reached))


def progress_of(runs: Sequence[Run], selection: Selection) -> SearchProgress | None:
    if not selection.words:
        return None
    waiting = sum(min(run.last_rollout - run.searchable_to, run.rollouts) for run in runs if run.last_rollout > run.searchable_to)
    return SearchProgress(waiting) if waiting else None


# The columns in the order of ListedRollout. Written out, because every list pays for composing it.
LISTED_ROLLOUTS = """
SELECT rollout.id, run_id, prompt_id, attempt, step, phase, group_index, sample, rewards, reward, advantage, length, mean_entropy, max_entropy,
    finish_reason, filtered, superseded, left(completion, %(cut)s), left(prompt.text, %(cut)s)
FROM trajectories_rollout AS rollout JOIN trajectories_prompt AS prompt ON prompt.id = rollout.prompt_id
WHERE rollout.id = ANY(%(ids)s::bigint[]) AND run_id = ANY(%(runs)s)
"""
REWARDS = 8  # place of the one column that is JSON


def load_page_rollouts(ids: Sequence[int], runs: Sequence[Run]) -> list[ListedRollout]:
    """The rollouts of the runs, which are the team's, in the order of ``ids``."""
    if not ids:
        return []
    known = {run.pk: run for run in runs}
    with connection.cursor() as cursor:
        cursor.execute(LISTED_ROLLOUTS, {"cut": CUT_AT, "ids": write_id_array(ids), "runs": list(known)})
        stored = cursor.fetchall()
    rollouts = {row[0]: ListedRollout(*(*row[:REWARDS], json.loads(row[REWARDS]), *row[REWARDS + 1 :], known[row[1]])) for row in stored}
    return [rollouts[pk] for pk in ids if pk in rollouts]


def find_neighbour_ids(team: Team, selection: Selection, rollout: Rollout) -> tuple[int | None, int | None]:
    """The ids before and after ``rollout`` in the selection's order, whether or not it is in the selection itself."""
    walk = Walk.of(team, selection)
    key = walk.order.keyed(Rollout.objects.of(team).filter(pk=rollout.pk)).values_list(*walk.order.columns).first()
    if key is None:
        return None, None
    before, after = (find_nearest_key(walk, key, backwards) for backwards in (True, False))
    return (before[-1] if before else None), (after[-1] if after else None)


def find_nearest_key(walk: Walk, key: Key, backwards: bool) -> Key | None:
    pattern = walk.selection.pattern
    if not pattern or regex.find_pattern_problem(pattern):
        nearest = walk.keys(key, backwards, 1)
    else:
        nearest = regex.search_matching_keys(pattern, lambda last, most: walk.keys(last, backwards, most), key, 1, NEIGHBOUR_SECONDS).keys
    return nearest[0] if nearest else None


def stream_rollouts(team: Team, selection: Selection, limit: int | None = None) -> Iterator[Rollout]:
    """Every rollout of the selection in its order, whole, with run and prompt; read in batches while they are used.

    Raises regex.TooSlow when a batch takes its regular expression too long; a pattern PostgreSQL cannot use counts as none.
    """
    runs = {run.pk: run for run in runs_of(team, selection)}
    order = Order.of(selection, len(runs))
    pattern = "" if not selection.pattern or regex.find_pattern_problem(selection.pattern) else selection.pattern
    ids = order.sorted(order.keyed(filter_matching_rollouts(team, selection))).values_list("pk", flat=True)
    left = limit if limit is not None else sys.maxsize
    for batch in split_id_batches(ids.iterator(chunk_size=BATCH), BATCH):
        if left <= 0:
            return
        if pattern:
            known = regex.matching_among(pattern, batch, STREAM_SECONDS)
            batch = [pk for pk in batch if pk in known]
        yield from fetch_whole_rollouts(batch[:left], runs)
        left -= len(batch)


def split_id_batches(ids: Iterable[int], size: int) -> Iterator[list[int]]:
    everything = iter(ids)
    while batch := list(islice(everything, size)):
        yield batch


def fetch_whole_rollouts(ids: Sequence[int], runs: Mapping[UUID, Run]) -> Iterator[Rollout]:
    rollouts = Rollout.objects.filter(run__in=list(runs.values())).select_related("prompt").in_bulk(ids)
    for pk in ids:
        if rollout := rollouts.get(pk):
            rollout.run = runs[rollout.run_id]
            yield rollout
