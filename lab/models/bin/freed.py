"""What deleting runs frees: rollouts, bytes of checkpoints and policies, and what people said about the rollouts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from django.db.models import Count, Sum

from lab.labelling.labels.models import Judgement
from lab.models.bin.label_items import find_run_items
from lab.rollouts.annotations.models import Comment
from lab.teams.accounts.models import Team
from lab.training.runs.models import Checkpoint, Run
from lab.watching.usage.models import RunStorage


@dataclass(frozen=True)
class Freed:
    rollouts: int = 0
    bytes: int = 0
    comments: int = 0
    labels: int = 0

    def __add__(self, other: Freed) -> Freed:
        return Freed(self.rollouts + other.rollouts, self.bytes + other.bytes, self.comments + other.comments, self.labels + other.labels)


def count_freed(team: Team, runs: Sequence[Run]) -> dict[UUID, Freed]:
    """Bytes are those that were measured on the disk, or what the checkpoints were reported to have where nothing was measured yet."""
    reported = Checkpoint.objects.filter(run__in=runs).order_by().values_list("run").annotate(Sum("bytes"))
    measured = RunStorage.objects.filter(run__in=runs).values_list("run", "checkpoints")
    sizes = {**dict(reported), **dict(measured)}
    said = Comment.objects.filter(rollout__run__in=runs, deleted_at=None).order_by().values_list("rollout__run").annotate(Count("pk"))
    comments, items = dict(said), find_run_items(team, runs)
    judged = Judgement.objects.filter(queue__team=team, item__in=set().union(*items.values())).order_by().values_list("item").annotate(Count("pk"))
    counts = dict(judged)
    labels = {run: sum(counts.get(item, 0) for item in ids) for run, ids in items.items()}
    return {run.pk: Freed(run.rollouts, sizes.get(run.pk, 0), comments.get(run.pk, 0), labels.get(run.pk, 0)) for run in runs}
