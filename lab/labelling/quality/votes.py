"""Which of a run's rollouts people preferred: every vote that counts, once.

A vote is one preference of one counting judgement between two rollouts of the run. In a reviewed queue only accepted judgements count. An item
that was adjudicated counts once, by its final answer, however many people had judged it. Votes that were themselves a reward of the run are left
out: the reward would be compared with itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from django.db.models import Min, Q, QuerySet

from lab.labelling.labels.implied_preferences import derive_preferences
from lab.labelling.labels.models import COUNTING, Item, ItemState, JudgementState, Preference, Purpose
from lab.rollouts.trajectories.models import Rollout
from lab.training.runs.models import Run

COUNTED = Q(judgement__queue__reviewed=False, judgement__state__in=COUNTING) | Q(
    judgement__queue__reviewed=True, judgement__state=JudgementState.ACCEPTED
)


@dataclass(frozen=True)
class ScoredRollout:
    """A rollout as the votes need it. ``rewards``: by reward function; None where it gave none."""

    step: int
    reward: float | None
    rewards: dict[str, float | None]


@dataclass(frozen=True)
class PreferenceVote:
    item: int
    chosen: ScoredRollout
    rejected: ScoredRollout

    @property
    def step(self) -> int:
        """The later step of the two answers: the policy that the vote is about."""
        return max(self.chosen.step, self.rejected.step)


def votes_of(run: Run) -> list[PreferenceVote]:
    """In order of step, of items, and of when they were given."""
    ids = find_rollout_id_range(run)
    if ids is None:
        return []
    pairs = [*query_judged_preferences(run, ids), *collect_final_preferences(run, ids)]
    scored = load_scored_rollouts(run, {rollout for _, chosen, rejected in pairs for rollout in (chosen, rejected)})
    votes = [PreferenceVote(item, scored[chosen], scored[rejected]) for item, chosen, rejected in pairs if chosen in scored and rejected in scored]
    return sorted(votes, key=lambda vote: (vote.step, vote.item))


def find_rollout_id_range(run: Run) -> tuple[int, int] | None:
    """The ids between which all rollouts of the run lie; None for a run without any. What came first is of the run's first step."""
    first = Rollout.objects.filter(run=run).order_by("step", "group", "sample").values_list("step", flat=True).first()
    if first is None:
        return None
    lowest = Rollout.objects.filter(run=run, step=first).aggregate(lowest=Min("pk"))["lowest"]
    return int(lowest), max(run.last_rollout, int(lowest))


def query_judged_preferences(run: Run, ids: tuple[int, int]) -> QuerySet[Preference, tuple[int, int, int]]:
    rows = Preference.objects.filter(COUNTED, item__queue__team=run.team_id, chosen__range=ids, rejected__range=ids)
    rows = rows.exclude(item__state__in=(ItemState.SETTLED, ItemState.DROPPED)).exclude(item__queue__purpose=Purpose.REWARD)
    return rows.order_by("pk").values_list("item_id", "chosen", "rejected")


def collect_final_preferences(run: Run, ids: tuple[int, int]) -> Iterable[tuple[int, int, int]]:
    items = Item.objects.filter(queue__team=run.team_id, state=ItemState.SETTLED, final__isnull=False).exclude(queue__purpose=Purpose.REWARD)
    low, high = ids
    for item, rollouts, final in items.values_list("pk", "rollouts", "final"):
        if final and rollouts and low <= min(rollouts) and max(rollouts) <= high:
            yield from ((item, chosen, rejected) for chosen, rejected in derive_preferences(final.get("verdict", ""), final.get("tiers"), rollouts))


def load_scored_rollouts(run: Run, ids: set[int]) -> dict[int, ScoredRollout]:
    rows = Rollout.objects.filter(run=run, pk__in=ids).values_list("pk", "step", "reward", "rewards")
    return {key: ScoredRollout(step, reward, parse_reward_values(rewards)) for key, step, reward, rewards in rows}


def parse_reward_values(rewards: object) -> dict[str, float | None]:
    """A rollout's rewards; what is neither a number nor absent (NaN is stored as text) counts as absent."""
    given = rewards.items() if isinstance(rewards, dict) else ()
    return {name: float(value) if isinstance(value, int | float) else None for name, value in given}
