"""What gold items that were asked again say: whether the labellers changed, apart from whether the model did.

The same person answers the same question twice, so a difference between the two times is theirs. New gold that was answered at the same time as
the repeats differs from them by the policy that wrote the answers, so a difference there is the model's.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median_low

from lab.labelling.labels.models import Judgement, Queue, Verdict
from lab.labelling.labels.outcome import is_gold_match
from lab.labelling.quality.labellers import GoldAnswer
from lab.labelling.quality.proportions import Proportion, estimate_share, has_share_fallen
from lab.rollouts.trajectories.models import Rollout
from lab.teams.accounts.models import Team

DOUBT = 0.05  # p below which a difference is more than chance


@dataclass(frozen=True)
class RepeatedAnswer:
    """One person's two answers to one gold item. ``order``: id of the second judgement; ``same``: the same verdict both times."""

    user: int
    order: int
    right_before: bool
    right: bool
    same: bool
    rollouts: tuple[int, ...]


@dataclass(frozen=True)
class RepeatDrift:
    """``before`` and ``again``: right on the same items by the same people. ``fresh``: right on gold first asked since the first repeat was.

    ``p``: exact McNemar test of before against again, two-sided. ``old_step`` and ``new_step``: median policy step of the repeats' and of the
    fresh items' answers; None where they are gone.
    """

    before: Proportion
    again: Proportion
    same: Proportion
    fresh: Proportion
    p: float
    old_step: int | None
    new_step: int | None

    @property
    def people_fell(self) -> bool:
        return self.p < DOUBT and (self.again.value or 0.0) < (self.before.value or 0.0)

    @property
    def model_fell(self) -> bool:
        """Answers of newer policies are judged less well than old ones at the same time."""
        return has_share_fallen(self.again, self.fresh)


def list_repeated_answers(queue: Queue, only: int | None = None) -> list[RepeatedAnswer]:
    """Second answers of the queue whose author answered the original too, in order of time. ``only``: one person's."""
    rows = Judgement.objects.filter(queue=queue, item__repeats__isnull=False).counting().exclude(verdict=Verdict.SKIP)
    if only is not None:
        rows = rows.filter(user=only)
    again = list(rows.select_related("item").order_by("pk"))
    originals = Judgement.objects.filter(queue__team=queue.team_id, item__in={row.item.repeats_id for row in again}).counting()
    before: dict[tuple[int | None, int], Judgement] = {(row.item_id, row.user_id): row for row in originals.exclude(verdict=Verdict.SKIP)}
    answers = []
    for row in again:
        first = before.get((row.item.repeats_id, row.user_id))
        if first is None or (right := is_gold_match(row.item.gold, row)) is None:
            continue
        right_before = is_gold_match(row.item.gold, first)
        answers.append(RepeatedAnswer(row.user_id, row.pk, bool(right_before), right, first.verdict == row.verdict, tuple(row.item.rollouts)))
    return answers


def compute_repeat_drift(team: Team, repeated: Sequence[RepeatedAnswer], gold: Sequence[GoldAnswer]) -> RepeatDrift | None:
    """None without repeats. ``gold``: all gold answers of the queue by the same people."""
    if not repeated:
        return None
    fresh = [answer for answer in gold if not answer.repeats and answer.order > repeated[0].order]
    lost = sum(answer.right_before and not answer.right for answer in repeated)
    gained = sum(answer.right and not answer.right_before for answer in repeated)
    return RepeatDrift(
        before=estimate_share(sum(answer.right_before for answer in repeated), len(repeated)),
        again=estimate_share(sum(answer.right for answer in repeated), len(repeated)),
        same=estimate_share(sum(answer.same for answer in repeated), len(repeated)),
        fresh=estimate_share(sum(answer.right for answer in fresh), len(fresh)),
        p=compute_mcnemar_p(lost, gained),
        old_step=find_median_step(team, (pk for answer in repeated for pk in answer.rollouts)),
        new_step=find_median_step(team, (pk for answer in fresh for pk in answer.rollouts)),
    )


def compute_mcnemar_p(lost: int, gained: int) -> float:
    """Two-sided exact test of ``lost`` against ``gained`` changes of mind: binomial with one half (McNemar 1947). 1 without changes."""
    changes = lost + gained
    tail = sum(math.comb(changes, count) for count in range(min(lost, gained) + 1))
    return min(1.0, 2 * tail / 2**changes)


def find_median_step(team: Team, rollouts: Iterable[int]) -> int | None:
    steps = list(Rollout.objects.filter(run__team=team, pk__in=set(rollouts)).values_list("step", flat=True))
    return median_low(steps) if steps else None
