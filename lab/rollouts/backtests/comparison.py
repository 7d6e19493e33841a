"""What another reward would have changed: scores beside the stored rewards, in the groups whose means advantages are taken from.

An advantage here is reward - mean of the group, as in GRPO (Shao et al. 2024, arXiv:2402.03300, section 4.1.2) before its division by the group's
standard deviation, which changes no sign and no rank.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import fmean, pstdev
from typing import Any

from lab.rollouts.backtests.models import FORMAT

NEAR = 1e-6  # smaller differences are none
MOST_FLIPS, MOST_ERRORS = 200, 5


@dataclass(frozen=True)
class ScoredRollout:
    """``before``: the stored reward; ``after``: the new score, None for no opinion or an error."""

    id: int
    step: int
    group: int
    sample: int
    before: float | None
    after: float | None
    error: str = ""
    seconds: float = 0.0


@dataclass(frozen=True)
class ComparedMember:
    rollout: ScoredRollout
    advantage_before: float
    advantage_after: float
    change: float  # between the advantages, each divided by its group's standard deviation

    @property
    def is_flipped(self) -> bool:
        return find_sign(self.advantage_before) * find_sign(self.advantage_after) < 0


def find_sign(value: float) -> int:
    return 0 if abs(value) <= NEAR else 1 if value > 0 else -1


def compare_scores(rows: Sequence[ScoredRollout]) -> dict[str, Any]:
    """Figures over all groups, and at most MOST_FLIPS rollouts whose advantage changes its sign, the largest change first."""
    groups: dict[tuple[int, int], list[ScoredRollout]] = defaultdict(list)
    for row in rows:
        if row.before is not None and row.after is not None:
            groups[row.step, row.group].append(row)
    members = [member for group in groups.values() for member in compare_members(group)]
    pairs = Counter[str]()
    for group in groups.values():
        pairs.update(count_pairs(group))
    flat = [(is_flat(one.before for one in group), is_flat(one.after for one in group)) for group in groups.values() if len(group) > 1]
    flips = sorted((member for member in members if member.is_flipped), key=lambda member: (-member.change, member.rollout.id))
    return {
        "format": FORMAT,
        "summary": {
            **count_rows(rows),
            "groups": len(flat),
            "pairs": pairs.total(),
            "flipped_pairs": pairs["flipped"],
            "tied_pairs": pairs["tied"],
            "signs": sum(bool(find_sign(member.advantage_before) and find_sign(member.advantage_after)) for member in members),
            "flipped_signs": len(flips),
            "flat_before": sum(before for before, _ in flat),
            "flat_after": sum(after for _, after in flat),
            "new_flat": sum(after and not before for before, after in flat),
            "correlation": compute_correlation([member.rollout for member in members]),
        },
        "flips": [describe_flip(member) for member in flips[:MOST_FLIPS]],
    }


def count_rows(rows: Sequence[ScoredRollout]) -> dict[str, Any]:
    errors = Counter(row.error for row in rows if row.error)
    seconds = [row.seconds for row in rows]
    scores, stored = [row.after for row in rows if row.after is not None], [row.before for row in rows if row.before is not None]
    return {
        "rollouts": len(rows),
        "scored": len(scores),
        "errors": errors.total(),
        "abstained": sum(row.after is None and not row.error for row in rows),
        "messages": [{"message": message, "count": count} for message, count in errors.most_common(MOST_ERRORS)],
        "seconds_mean": fmean(seconds) if seconds else 0.0,
        "seconds_longest": max(seconds, default=0.0),
        "mean_before": fmean(stored) if stored else None,
        "mean_after": fmean(scores) if scores else None,
    }


def compare_members(group: Sequence[ScoredRollout]) -> list[ComparedMember]:
    """Of one group, all of whose members have both values."""
    before, after = [float(row.before or 0) for row in group], [float(row.after or 0) for row in group]
    own, new = fmean(before), fmean(after)
    spread, new_spread = pstdev(before), pstdev(after)
    made = []
    for row, was, now in zip(group, before, after, strict=True):
        change = abs((now - new) / new_spread if new_spread > NEAR else 0.0) + abs((was - own) / spread if spread > NEAR else 0.0)
        same = find_sign(was - own) == find_sign(now - new)
        made.append(ComparedMember(row, was - own, now - new, 0.0 if same else change))
    return made


def count_pairs(group: Sequence[ScoredRollout]) -> Counter[str]:
    """Pairs of answers that the stored rewards rank: kept, flipped or tied by the new scores."""
    counted = Counter[str]()
    for one, other in combinations(group, 2):
        was, now = find_sign((one.before or 0) - (other.before or 0)), find_sign((one.after or 0) - (other.after or 0))
        if was:
            counted["tied" if not now else "kept" if now == was else "flipped"] += 1
    return counted


def is_flat(values: Iterable[float | None]) -> bool:
    """Whether a group has zero variance: nothing is learnt from it."""
    known = [value for value in values if value is not None]
    return max(known) - min(known) <= NEAR


def compute_correlation(rows: Sequence[ScoredRollout]) -> float | None:
    """Pearson, of stored and new; None where one side is constant."""
    before, after = [row.before or 0.0 for row in rows], [row.after or 0.0 for row in rows]
    if len(rows) < 2 or is_flat(before) or is_flat(after):
        return None
    own, new = fmean(before), fmean(after)
    shared = fmean((was - own) * (now - new) for was, now in zip(before, after, strict=True))
    return shared / (pstdev(before) * pstdev(after))


def describe_flip(member: ComparedMember) -> dict[str, Any]:
    row = member.rollout
    values = {"before": row.before, "after": row.after, "advantage_before": member.advantage_before, "advantage_after": member.advantage_after}
    return {"id": row.id, "step": row.step, "group": row.group, "sample": row.sample, **values}
