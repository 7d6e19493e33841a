"""Which rollouts of a selection are embedded: all of them, or so many at even distances in the order in which they were stored."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lab.lib.refusals import Refusal
from lab.rollouts.browse import regex
from lab.rollouts.browse.pages import filter_matching_rollouts, split_id_batches
from lab.rollouts.browse.selection import Selection
from lab.rollouts.trajectories.models import Rollout
from lab.teams.accounts.models import Team

MOST_LOOKED_AT = 1_000_000  # rollouts of a selection, the newest
BATCH = 500
PATTERN_SECONDS, BATCH_SECONDS = 120.0, 5.0  # for a regular expression: over all, and of a batch
SLOW = "Narrow the selection first, or leave the regular expression out."


@dataclass(frozen=True)
class DrawnSample:
    """``ids`` ascending, of ``selected`` rollouts."""

    ids: list[int]
    selected: int


def draw_sample(team: Team, selection: Selection, most: int) -> DrawnSample:
    """The same for the same rollouts. Raises Refusal when a regular expression takes too long."""
    newest = filter_matching_rollouts(team, selection).order_by("-pk").values_list("pk", flat=True)[:MOST_LOOKED_AT]
    if selection.pattern and not regex.find_pattern_problem(selection.pattern):
        found = match_pattern(selection.pattern, list(newest))
    else:
        found = list(newest.iterator(chunk_size=10_000))
    return DrawnSample(take_evenly(found[::-1], most), len(found))


def match_pattern(pattern: str, ids: list[int]) -> list[int]:
    end, found = time.monotonic() + PATTERN_SECONDS, list[int]()
    for batch in split_id_batches(ids, BATCH):
        try:
            known = regex.matching_among(pattern, batch, BATCH_SECONDS)
        except regex.TooSlow:
            raise Refusal("The regular expression is too slow for this selection.", SLOW) from None
        found += [pk for pk in batch if pk in known]
        if time.monotonic() > end:
            raise Refusal(f"The regular expression took longer than {PATTERN_SECONDS:.0f} s.", SLOW)
    return found


def take_evenly(ids: list[int], most: int) -> list[int]:
    """At most ``most`` of them, the first and the last included, at even distances."""
    if len(ids) <= most:
        return ids
    places: npt.NDArray[np.int64] = np.linspace(0, len(ids) - 1, most).round().astype(np.int64)
    return [ids[place] for place in places]


def draw_around(team: Team, rollout: Rollout, most: int) -> DrawnSample:
    """The rollout, and a sample of its run."""
    mine = Rollout.objects.of(team).filter(run=rollout.run, superseded=False).order_by("-pk").values_list("pk", flat=True)[:MOST_LOOKED_AT]
    found = list(mine)[::-1]
    return DrawnSample(sorted({rollout.pk, *take_evenly(found, most - 1)}), len({rollout.pk, *found}))
