"""Whether labellers change: agreement with gold over time, and by the age of the policy that wrote the answers.

The two tell drift of people from drift of the model: gold items hold answers of known policies, and the same step served early and late should be
judged alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lab.labelling.quality.labellers import GoldAnswer
from lab.labelling.quality.proportions import Proportion, estimate_share, has_share_fallen
from lab.rollouts.trajectories.models import Rollout
from lab.teams.accounts.models import Team

LEAST = 10  # gold answers of a window
WINDOWS = 8


@dataclass(frozen=True)
class GoldStretch:
    """A run of gold answers. ``first`` and ``last``: which answers in order of time (from 1), or which policy steps."""

    first: int
    last: int
    share: Proportion


@dataclass(frozen=True)
class Drift:
    stretches: list[GoldStretch]

    @property
    def fell(self) -> bool:
        """The newest stretch lies below the first by more than chance."""
        return len(self.stretches) > 1 and has_share_fallen(self.stretches[0].share, self.stretches[-1].share)


def over_time(answers: Sequence[GoldAnswer]) -> Drift:
    return Drift(cut_into_stretches([(number, answer.right) for number, answer in enumerate(answers, 1)]))


def over_steps(team: Team, answers: Sequence[GoldAnswer]) -> Drift:
    """By the newest step of the item's answers; those whose rollouts are gone are left out."""
    ids = {rollout for answer in answers for rollout in answer.rollouts}
    steps = dict(Rollout.objects.filter(run__team=team, pk__in=ids).values_list("pk", "step"))
    placed = []
    for answer in answers:
        known = [steps[rollout] for rollout in answer.rollouts if rollout in steps]
        if known:
            placed.append((max(known), answer.right))
    return Drift(cut_into_stretches(sorted(placed, key=lambda entry: entry[0])))


def cut_into_stretches(answers: Sequence[tuple[int, bool]]) -> list[GoldStretch]:
    """Stretches of at least LEAST answers that part no place; what is left at the end joins the last. ``answers``: (place, right) in order."""
    least = max(LEAST, -(-len(answers) // WINDOWS))
    groups: list[list[tuple[int, bool]]] = []
    for position, hit in answers:
        full = groups and len(groups[-1]) >= least and groups[-1][-1][0] != position
        if full or not groups:
            groups.append([])
        groups[-1].append((position, hit))
    if len(groups) > 1 and len(groups[-1]) < least:
        groups[-2:] = [[*groups[-2], *groups[-1]]]
    return [GoldStretch(group[0][0], group[-1][0], estimate_share(sum(hit for _, hit in group), len(group))) for group in groups]
