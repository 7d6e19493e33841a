"""Safety labels: what annotators skipped as harmful or private, and rollouts that carry the tag ``unsafe``."""

from __future__ import annotations

from lab.labelling.labels.models import ItemState, Judgement, Verdict
from lab.rollouts.annotations.models import RolloutTag
from lab.rollouts.trajectories.models import Rollout
from lab.training.runs.models import Run

HARMFUL = "Harmful or private content"  # the reason of a skip
TAG = "unsafe"
MOST_LABELS = 10_000  # newest skips of the team that are looked at


def list_unsafe_rollouts(run: Run, last_step: int) -> list[int]:
    """Ids of the run's rollouts up to ``last_step`` with an open safety label, in order.

    A tag is open until it is removed; a skip until its author withdraws it, a reviewer returns it or somebody settles its item. A skip is about an
    item, so every rollout of the run in that item counts.
    """
    skips = Judgement.objects.counting().filter(queue__team=run.team_id, verdict=Verdict.SKIP, rationale=HARMFUL)
    shown = skips.exclude(item__state=ItemState.SETTLED).order_by("-pk").values_list("item__rollouts", flat=True)[:MOST_LABELS]
    skipped = {rollout for rollouts in shown for rollout in rollouts}
    own = Rollout.objects.filter(run=run, step__lte=last_step)
    unsafe = set(own.filter(pk__in=skipped).values_list("pk", flat=True))
    tags = RolloutTag.objects.filter(tag__team=run.team_id, tag__name__iexact=TAG, rollout__run=run, rollout__step__lte=last_step)
    return sorted(unsafe | set(tags.values_list("rollout_id", flat=True)))
