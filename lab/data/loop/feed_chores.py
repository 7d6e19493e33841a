"""Groups of running runs into queues, as they arrive.

Every worker calls ``route_feeds`` now and then; the feed's row, locked and stepped over by others, lets one of them act. Items, ``routed`` and
``seen_to`` are one transaction, so that a killed worker routes nothing twice. Which groups are drawn follows from run, step and group alone.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import groupby
from typing import Any

from django.db import transaction
from django.db.models import F
from django.utils import timezone

from lab.data.loop.models import Feed
from lab.labelling.labels.disagreement import model_for
from lab.labelling.labels.models import Kind, QueueStatus, Strategy
from lab.labelling.labels.new_queues import NewItem, add_items
from lab.labelling.labels.pairs import make_items_from_pool
from lab.labelling.labels.pool import RolloutPool, build_rollout_pool, make_blank_expression, make_hash_expression
from lab.labelling.labels.recipe import Recipe
from lab.labelling.labels.strategies import score_candidates
from lab.rollouts.browse.selection import Selection
from lab.rollouts.trajectories.models import Rollout

log = logging.getLogger(__name__)

BATCH = 4000  # rollouts of one look
GIVEN_UP = 3  # steps later, a group that is not whole is passed over: its trainer died in the middle of it
COLUMNS = ("pk", "run_id", "phase", "step", "group", "sample", "prompt_id", "reward", "mean_entropy", "length", "text", "blank")


def route_feeds() -> None:
    """One round over all feeds that are on. Raises database errors; the caller comes again."""
    for pk in Feed.across_teams.filter(stopped_at=None).order_by("pk").values_list("pk", flat=True):
        while route_one(pk):
            pass


def route_one(pk: int) -> bool:
    """Looks at the next rollouts of one feed; True when there may be more at once."""
    with transaction.atomic():
        feed = (
            Feed.across_teams.select_for_update(skip_locked=True, of=("self",))
            .select_related("run", "queue", "team")
            .filter(pk=pk, stopped_at=None)
            .first()
        )
        if feed is None:
            return False
        ended = not feed.run.is_open  # asked before the rollouts: nothing comes after them then
        rows = list(select_new_rollouts(feed))
        full = len(rows) == BATCH
        groups = find_complete_groups(rows, size_of(feed), ended and not full)
        added = add_feed_items(feed, [row for group in groups.groups if is_in_feed_share(feed, group[0]) for row in group])
        feed.routed += added
        moved = groups.seen_to > feed.seen_to
        feed.seen_to = max(feed.seen_to, groups.seen_to)
        if feed.routed >= feed.most or feed.queue.status == QueueStatus.CLOSED or (ended and not full):
            feed.stopped_at = timezone.now()
        feed.save(update_fields=["routed", "seen_to", "stopped_at"])
    if added:
        log.info("feed %s: %d items of run %s", pk, added, feed.run_id)
    return full and moved and feed.stopped_at is None


def select_new_rollouts(feed: Feed) -> Any:
    """Training rollouts after those that were looked at, in the order they were stored."""
    rollouts = Rollout.across_teams.filter(run=feed.run_id, pk__gt=feed.seen_to, phase="train", superseded=False)
    return rollouts.annotate(text=make_hash_expression(), blank=make_blank_expression()).order_by("pk").values_list(*COLUMNS)[:BATCH]


def size_of(feed: Feed) -> int:
    """Members of a whole group; 0 where the run does not say."""
    size = (feed.run.spec.get("training") or {}).get("num_generations", 0)
    return size if isinstance(size, int) else 0


@dataclass(frozen=True)
class CompleteGroups:
    """``groups``: their rows by sample; ``seen_to``: every rollout up to this id belongs to them, or to a group that is given up."""

    groups: list[list[Any]]
    seen_to: int


def find_complete_groups(rows: Sequence[Any], size: int, ended: bool) -> CompleteGroups:
    """The groups that are all there. What belongs to others, and whole groups that came among those, waits for the next look."""
    if not rows:
        return CompleteGroups([], 0)
    newest = max(row[3] for row in rows)
    groups = [sorted(members, key=lambda row: row[5]) for _, members in groupby(sorted(rows, key=group_key), key=group_key)]
    complete = [len(group) >= size if size else ended or group[0][3] < newest for group in groups]
    over = [ended or group[0][3] <= newest - GIVEN_UP for group in groups]
    spans = [(min(row[0] for row in group), max(row[0] for row in group)) for group in groups]
    until = min((first for (first, _), ready, late in zip(spans, complete, over, strict=True) if not (ready or late)), default=rows[-1][0] + 1)
    while straddling := [first for first, last in spans if first < until <= last]:
        until = min(straddling)
    ready = [group for group, (_, last), whole_ in zip(groups, spans, complete, strict=True) if whole_ and last < until]
    return CompleteGroups(sorted(ready, key=lambda group: group[0][0]), until - 1)


def group_key(row: Any) -> tuple[int, int]:
    return row[3], row[4]


def is_in_feed_share(feed: Feed, row: Any) -> bool:
    """Whether the group of a rollout is in the feed's share."""
    digest = blake2b(f"{feed.run_id}/{row[3]}/{row[4]}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") < feed.share * 2**64


def add_feed_items(feed: Feed, rows: list[Any]) -> int:
    """Items of the drawn groups; how many. Groups without two different answers give none."""
    left = feed.most - feed.routed
    rows = [(*row, None, None) for row in rows if not row[11]]  # neither gold nor a judge
    if not rows or left <= 0 or feed.queue.status == QueueStatus.CLOSED:
        return 0
    queue, number = feed.queue, feed.run.number
    recipe = Recipe(Selection(runs=(number,)), kind=Kind(queue.kind), strategy=Strategy(queue.strategy), seed=queue.seed, most=left, per=1)
    model = model_for(feed.team, [feed.run_id]) if recipe.strategy == Strategy.DISAGREEMENT else None
    pool: RolloutPool = build_rollout_pool(rows, [number] * len(rows), recipe)
    selected = make_items_from_pool(pool, recipe, lambda features: score_candidates(recipe.strategy, features, recipe.seed, model))
    return add_items(queue, [NewItem(prompt, item) for prompt, item in zip(selected.prompts, selected.items, strict=True)])


def restart_feed(feed: Feed, share: float, most: int) -> None:
    """Lets a feed that has stopped go on where it was, for ``most`` items more."""
    Feed.objects.same_row(feed).update(stopped_at=None, share=share, most=F("routed") + most)
