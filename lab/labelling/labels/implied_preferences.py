"""Which answers are better than which, by one judgement."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

from lab.labelling.labels.models import Verdict


def derive_preferences(verdict: str, tiers: Sequence[Sequence[int]] | None, rollouts: Sequence[int]) -> list[tuple[int, int]]:
    """(chosen, rejected) rollout ids, best first; none inside a tie, none of a skip, of a single answer or of two pairs.

    ``tiers`` are places in ``rollouts``, best first. {A=B}>C>{D=E} gives 2·1 + 2·2 + 1·2 = 8. Empty where the rollouts are not stored yet.
    """
    if len(rollouts) < 2:
        return []
    if verdict == Verdict.A:
        return [(rollouts[0], rollouts[1])]
    if verdict == Verdict.B:
        return [(rollouts[1], rollouts[0])]
    if verdict != Verdict.RANKED or not tiers:
        return []
    return [(rollouts[better], rollouts[worse]) for upper, lower in combinations(tiers, 2) for better in upper for worse in lower]
