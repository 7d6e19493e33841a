"""A page of a selection, the neighbours of a rollout in it, and all of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from django.db.models import QuerySet
from django.db.models.functions import Left

from lab.accounts.models import Team
from lab.browse.conditions import matching, runs_of
from lab.browse.order import Key, Order, read_cursor, write_cursor
from lab.browse.selection import Selection
from lab.runs.models import Run
from lab.trajectories.models import Prompt, Rollout

__all__ = ["Count", "Examined", "Page", "SearchProgress", "matching", "neighbours", "read_page", "runs_of", "stream"]

CUT_AT = 300  # characters of a prompt or completion that a list needs
COUNTED_TO = 1000
BATCH = 500


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
    """Rollouts with ``run`` and ``prompt`` loaded, but of their texts only the start: ``rollout.head`` and ``rollout.prompt.head``.

    ``next`` and ``previous`` are cursors, "" where there is nothing further.
    """

    rows: list[Rollout]
    next: str
    previous: str
    count: Count
    progress: SearchProgress | None = None
    examined: Examined | None = None


def read_page(team: Team, selection: Selection, size: int = 50) -> Page:
    runs = runs_of(team, selection)
    order = Order.of(selection, len(runs))
    place = read_cursor(order, selection.after)
    rows = order.keyed(matching(team, selection))
    key, backwards = place or (None, False)
    keys = fetch(rows, order, key, backwards, size + 1)
    if backwards and len(keys) <= size:  # the first page, whole
        key, backwards = None, False
        keys = fetch(rows, order, None, False, size + 1)
    more, keys = len(keys) > size, keys[:size]
    if backwards:
        keys.reverse()
    after = write_cursor(order, keys[-1]) if keys and (more or backwards) else ""
    before = write_cursor(order, keys[0], backwards=True) if keys and (more if backwards else key) else ""
    return Page(load([key[-1] for key in keys], runs), after, before, counted(rows), progress_of(runs, selection))


def fetch(rows: QuerySet[Rollout], order: Order, key: Key | None, backwards: bool, limit: int) -> list[Key]:
    found = order.sorted(order.beyond(rows, key, backwards) if key else rows, backwards)
    return list(found.values_list(*order.columns)[:limit])


def counted(rows: QuerySet[Rollout]) -> Count:
    number = rows.order_by()[: COUNTED_TO + 1].count()
    return Count(min(number, COUNTED_TO), number <= COUNTED_TO)


def progress_of(runs: Sequence[Run], selection: Selection) -> SearchProgress | None:
    if not selection.words:
        return None
    waiting = sum(min(run.last_rollout - run.searchable_to, run.rollouts) for run in runs if run.last_rollout > run.searchable_to)
    return SearchProgress(waiting) if waiting else None


def load(ids: Sequence[int], runs: Sequence[Run]) -> list[Rollout]:
    """The rollouts in the order of ``ids``, in two queries."""
    rows = Rollout.objects.filter(pk__in=ids).defer("completion", "turns", "contributions", "shaped").annotate(head=Left("completion", CUT_AT))
    found = {rollout.pk: rollout for rollout in rows}
    asked = Prompt.objects.filter(pk__in={rollout.prompt_id for rollout in found.values()}).defer("messages", "text")
    prompts = {prompt.pk: prompt for prompt in asked.annotate(head=Left("text", CUT_AT))}
    known = {run.pk: run for run in runs}
    for rollout in found.values():
        rollout.run, rollout.prompt = known[rollout.run_id], prompts[rollout.prompt_id]
    return [found[pk] for pk in ids if pk in found]


def neighbours(team: Team, selection: Selection, rollout: Rollout) -> tuple[int | None, int | None]:
    """The ids before and after ``rollout`` in the selection's order, whether or not it is in the selection itself."""
    order = Order.of(selection, len(runs_of(team, selection)))
    rows = order.keyed(matching(team, selection))
    key = order.keyed(Rollout.objects.filter(pk=rollout.pk)).values_list(*order.columns).first()
    if key is None:
        return None, None
    before, after = (fetch(rows, order, key, backwards, 1) for backwards in (True, False))
    return (before[0][-1] if before else None), (after[0][-1] if after else None)


def stream(team: Team, selection: Selection, limit: int | None = None) -> Iterator[Rollout]:
    """Every rollout of the selection in its order, whole, with run and prompt; read in batches while they are used."""
    runs = {run.pk: run for run in runs_of(team, selection)}
    order = Order.of(selection, len(runs))
    ids = order.sorted(order.keyed(matching(team, selection))).values_list("pk", flat=True)[:limit].iterator(chunk_size=BATCH)
    batch: list[int] = []
    for pk in ids:
        batch.append(pk)
        if len(batch) == BATCH:
            yield from whole(batch, runs)
            batch = []
    yield from whole(batch, runs)


def whole(ids: Sequence[int], runs: dict[object, Run]) -> Iterator[Rollout]:
    found = Rollout.objects.select_related("prompt").in_bulk(ids)
    for pk in ids:
        if rollout := found.get(pk):
            rollout.run = runs[rollout.run_id]
            yield rollout
