"""What was said about rollouts, in short, for lists: four queries for a page of any size."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from django.db.models import Avg, Count, Q

from lab.annotations.models import Comment, Mark, Rating, RolloutTag, StepMark


@dataclass
class Summary:
    """Of one rollout. ``rating`` is the mean of ``ratings`` people, None when nobody rated; ``comments`` counts answers too;
    ``open`` the threads nobody resolved; ``marks`` the marked steps by good, bad, neutral, of all people.
    """

    tags: list[str] = field(default_factory=list)
    rating: float | None = None
    ratings: int = 0
    comments: int = 0
    open: int = 0
    marks: dict[str, int] = field(default_factory=lambda: dict.fromkeys(Mark.values, 0))

    def __bool__(self) -> bool:
        return bool(self.tags or self.ratings or self.comments or any(self.marks.values()))


def summaries(rollout_ids: Iterable[int]) -> dict[int, Summary]:
    """A summary for every id, empty for rollouts nobody said anything about. The ids must be of the reader's team already."""
    found = {rollout: Summary() for rollout in rollout_ids}
    ids = list(found)
    if not ids:
        return found
    for rollout, tag in RolloutTag.objects.filter(rollout__in=ids).order_by("tag__name").values_list("rollout_id", "tag__name"):
        found[rollout].tags.append(tag)
    for rollout, mean, count in Rating.objects.filter(rollout__in=ids).values_list("rollout_id").annotate(Avg("value"), Count("pk")):
        found[rollout].rating, found[rollout].ratings = mean, count
    thread = Q(parent=None, resolved_at=None)
    said = Comment.objects.filter(rollout__in=ids, deleted_at=None).order_by().values_list("rollout_id")
    for rollout, count, still_open in said.annotate(count=Count("pk"), open=Count("pk", filter=thread)):
        found[rollout].comments, found[rollout].open = count, still_open
    for rollout, mark, count in StepMark.objects.filter(rollout__in=ids).order_by().values_list("rollout_id", "mark").annotate(Count("pk")):
        found[rollout].marks[mark] = count
    return found
