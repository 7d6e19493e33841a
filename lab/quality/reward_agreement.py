"""How often people and a reward put two answers in the same order: overall, and over windows of training steps. Pure: no database."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

import numpy as np
import numpy.typing as npt

from lab.quality.proportions import Share, clustered_share, fell
from lab.quality.votes import Scored, Vote
from lab.runs.metrics import Integers, Series

TOTAL = ""  # name of the column that stands for the total reward
FEWEST = 10  # votes of a window
MOST_WINDOWS = 12


@dataclass(frozen=True)
class Window:
    """Steps ``first`` to ``last``, both included. ``reward`` is the run's mean reward in them; ``gap`` marks that it is higher than in an earlier
    window while people agree with the reward less than there, by more than chance: ``since`` is the last step of that window.
    """

    first: int
    last: int
    share: Share
    disagreeing: int
    look: int
    reward: float | None
    since: int | None = None

    @property
    def gap(self) -> bool:
        return self.since is not None


@dataclass(frozen=True)
class Column:
    """One reward function, or the total. Votes on answers it scored alike (``ties``) or did not score (``missing``) are left out."""

    name: str
    share: Share
    ties: int
    missing: int
    windows: list[Window]

    @property
    def disagreeing(self) -> int:
        return sum(window.disagreeing for window in self.windows)


def columns(votes: Sequence[Vote], rewards: Series | None) -> list[Column]:
    """The total first, then the functions by name. ``votes`` in order of step; ``rewards`` is the run's mean reward by step."""
    if not votes:
        return []
    names = sorted({name for vote in votes for one in (vote.chosen, vote.rejected) for name in one.rewards})
    ends = edges([vote.step for vote in votes])
    return [column(TOTAL, votes, lambda one: one.reward, ends, rewards), *(column(name, votes, of(name), ends, rewards) for name in names)]


def of(name: str) -> Callable[[Scored], float | None]:
    return lambda one: one.rewards.get(name)


def edges(steps: Sequence[int]) -> list[tuple[int, int]]:
    """Windows of whole steps with at least FEWEST votes each, at most MOST_WINDOWS of about as many votes; what is left at the end joins the last.

    ``steps`` in order, one a vote. Fewer votes than FEWEST make one window.
    """
    least = max(FEWEST, math.ceil(len(steps) / MOST_WINDOWS))
    made: list[tuple[int, int]] = []
    first, count = steps[0], 0
    for step, votes in groupby(steps):
        if not count:
            first = step
        count += len(list(votes))
        if count >= least:
            made.append((first, step))
            count = 0
    if count:
        made = [*made[:-1], (made[-1][0], steps[-1])] if made else [(first, steps[-1])]
    return made


def column(
    name: str, votes: Sequence[Vote], score: Callable[[Scored], float | None], ends: Sequence[tuple[int, int]], rewards: Series | None
) -> Column:
    pairs = [(vote, score(vote.chosen), score(vote.rejected)) for vote in votes]
    known = [(vote, chosen, rejected) for vote, chosen, rejected in pairs if chosen is not None and rejected is not None]
    apart = [(vote, chosen > rejected) for vote, chosen, rejected in known if chosen != rejected]
    steps: Integers = np.array([vote.step for vote, _ in apart], dtype=np.int64)
    items: Integers = np.array([vote.item for vote, _ in apart], dtype=np.int64)
    agrees = np.array([agreed for _, agreed in apart], dtype=bool)
    windows = [window(first, last, steps, items, agrees, rewards) for first, last in ends]
    windows = [one for one in windows if one.share.n]
    return Column(name, clustered_share(agrees, items), len(known) - len(apart), len(pairs) - len(known), marked(windows))


def window(first: int, last: int, steps: Integers, items: Integers, agrees: npt.NDArray[np.bool_], rewards: Series | None) -> Window:
    inside = (steps >= first) & (steps <= last)
    kept = agrees[inside]
    against = Counter(steps[inside][~kept].tolist())
    look = max(against, key=lambda step: (against[step], -step)) if against else last
    return Window(first, last, clustered_share(kept, items[inside]), against.total(), look, mean_between(rewards, first, last))


def mean_between(series: Series | None, first: int, last: int) -> float | None:
    if series is None:
        return None
    values = series.values[(series.steps >= first) & (series.steps <= last) & np.isfinite(series.values)]
    return float(values.mean()) if len(values) else None


def marked(windows: Sequence[Window]) -> list[Window]:
    """Each window is compared with the earlier one in which people agreed most with the reward, of those whose reward was lower; with the doubt
    that looking at every two windows asks for.
    """
    made: list[Window] = []
    looks = math.comb(len(windows), 2)
    for place, one in enumerate(windows):
        now = one.reward
        before = [earlier for earlier in windows[:place] if now is not None and earlier.reward is not None and earlier.reward < now]
        best = max(before, key=lambda earlier: earlier.share.value or 0.0, default=None)
        since = best.last if best is not None and fell(best.share, one.share, looks) else None
        made.append(replace(one, since=since))
    return made
