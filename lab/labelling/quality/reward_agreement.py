"""How often people and a reward put two answers in the same order: overall, and over windows of training steps. Pure: no database."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby

import numpy as np
import numpy.typing as npt

from lab.labelling.quality.proportions import Proportion, clustered_share, has_share_fallen
from lab.labelling.quality.votes import PreferenceVote, ScoredRollout
from lab.training.runs.metrics import Floats, Integers, Series

TOTAL = ""  # name of the column that stands for the total reward
FEWEST = 10  # votes of a window
MOST_WINDOWS = 12


@dataclass(frozen=True)
class AgreementWindow:
    """Steps ``first`` to ``last``, both included. ``reward`` is the run's mean reward in them; ``gap`` marks that it is higher than in an earlier
    window while people agree with the reward less than there, by more than chance: ``since`` is the last step of that window.
    """

    first: int
    last: int
    share: Proportion
    disagreeing: int
    look: int
    reward: float | None
    since: int | None = None

    @property
    def gap(self) -> bool:
        return self.since is not None


@dataclass(frozen=True)
class RewardColumn:
    """One reward function, or the total. Votes on answers it scored alike (``ties``) or did not score (``missing``) are left out."""

    name: str
    share: Proportion
    ties: int
    missing: int
    windows: list[AgreementWindow]

    @property
    def disagreeing(self) -> int:
        return sum(window.disagreeing for window in self.windows)


@dataclass(frozen=True)
class VoteTable:
    """Votes as arrays (V,): step, item, and the places of their answers in ``scored``, which holds every answer once."""

    steps: Integers
    items: Integers
    chosen: Integers
    rejected: Integers
    scored: list[ScoredRollout]

    @classmethod
    def of(cls, votes: Sequence[PreferenceVote]) -> VoteTable:
        places: dict[int, int] = {}
        scored: list[ScoredRollout] = []

        def index_of(answer: ScoredRollout) -> int:
            if id(answer) not in places:
                places[id(answer)] = len(scored)
                scored.append(answer)
            return places[id(answer)]

        rows = [(vote.step, vote.item, index_of(vote.chosen), index_of(vote.rejected)) for vote in votes]
        steps, items, chosen, rejected = np.array(rows, dtype=np.int64).reshape(-1, 4).T
        return cls(steps, items, chosen, rejected, scored)


def build_agreement_columns(votes: Sequence[PreferenceVote], rewards: Series | None) -> list[RewardColumn]:
    """The total first, then the functions by name. ``votes`` in order of step; ``rewards`` is the run's mean reward by step."""
    if not votes:
        return []
    table = VoteTable.of(votes)
    names = sorted({name for answer in table.scored for name in answer.rewards})
    ends = split_step_windows(table.steps.tolist())
    total = np.array([np.nan if answer.reward is None else answer.reward for answer in table.scored])
    return [
        build_agreement_column(TOTAL, table, total, ends, rewards),
        *(build_agreement_column(name, table, collect_function_scores(name, table.scored), ends, rewards) for name in names),
    ]


def collect_function_scores(name: str, scored: Sequence[ScoredRollout]) -> Floats:
    """(S,): what a function gave each answer, NaN where nothing."""
    given = (answer.rewards.get(name) for answer in scored)
    return np.array([np.nan if value is None else value for value in given])


def split_step_windows(steps: Sequence[int]) -> list[tuple[int, int]]:
    """Windows of whole steps with at least FEWEST votes each, at most MOST_WINDOWS of about as many votes; what is left at the end joins the last.

    ``steps`` in order, one a vote. Fewer votes than FEWEST make one window.
    """
    least = max(FEWEST, math.ceil(len(steps) / MOST_WINDOWS))
    windows: list[tuple[int, int]] = []
    first, count = steps[0], 0
    for step, votes in groupby(steps):
        if not count:
            first = step
        count += len(list(votes))
        if count >= least:
            windows.append((first, step))
            count = 0
    if count:
        windows = [*windows[:-1], (windows[-1][0], steps[-1])] if windows else [(first, steps[-1])]
    return windows


def build_agreement_column(name: str, table: VoteTable, score: Floats, ends: Sequence[tuple[int, int]], rewards: Series | None) -> RewardColumn:
    chosen, rejected = score[table.chosen], score[table.rejected]
    known = ~(np.isnan(chosen) | np.isnan(rejected))
    apart = known & (chosen != rejected)
    steps, items, agrees = table.steps[apart], table.items[apart], (chosen > rejected)[apart]
    windows = [build_agreement_window(first, last, steps, items, agrees, rewards) for first, last in ends]
    windows = [window for window in windows if window.share.n]
    ties, missing = int((known & ~apart).sum()), int((~known).sum())
    return RewardColumn(name, clustered_share(agrees, items), ties, missing, mark_reward_gaps(windows))


def build_agreement_window(
    first: int, last: int, steps: Integers, items: Integers, agrees: npt.NDArray[np.bool_], rewards: Series | None
) -> AgreementWindow:
    inside = (steps >= first) & (steps <= last)
    kept = agrees[inside]
    against = Counter(steps[inside][~kept].tolist())
    look = max(against, key=lambda step: (against[step], -step)) if against else last
    return AgreementWindow(first, last, clustered_share(kept, items[inside]), against.total(), look, mean_between(rewards, first, last))


def mean_between(series: Series | None, first: int, last: int) -> float | None:
    if series is None:
        return None
    values = series.values[(series.steps >= first) & (series.steps <= last) & np.isfinite(series.values)]
    return float(values.mean()) if len(values) else None


def mark_reward_gaps(windows: Sequence[AgreementWindow]) -> list[AgreementWindow]:
    """Each window is compared with the earlier one in which people agreed most with the reward, of those whose reward was lower; with the doubt
    that looking at every two windows asks for.
    """
    marked: list[AgreementWindow] = []
    looks = math.comb(len(windows), 2)
    for index, window in enumerate(windows):
        now = window.reward
        before = [earlier for earlier in windows[:index] if now is not None and earlier.reward is not None and earlier.reward < now]
        best = max(before, key=lambda earlier: earlier.share.value or 0.0, default=None)
        since = best.last if best is not None and has_share_fallen(best.share, window.share, looks) else None
        marked.append(replace(window, since=since))
    return marked
