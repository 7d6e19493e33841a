"""What was said about rollouts, in short, for lists: one query for a page of any size."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from django.db.models import Avg, Count, F, Model, Q, QuerySet, Value

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
    for kind, rollout, name, mean, count, still_open in said_of(list(found)) if found else ():
        summary = found[rollout]
        if kind == "tag":
            summary.tags.append(name)
        elif kind == "rating":
            summary.rating, summary.ratings = mean, count
        elif kind == "comment":
            summary.comments, summary.open = count, still_open
        else:
            summary.marks[name] = count
    return found


def said_of(ids: list[int]) -> QuerySet[Any, tuple[str, int, str, float, int, int]]:
    """Kind, rollout, name (of a tag or a mark), mean (of ratings), how many, and how many threads are open; by name.

    Four tables in one query: to most rollouts nobody has said anything, and then a list's time is that of its round trips.
    """

    def rows(model: type[Model], kind: str, **told: Any) -> QuerySet[Any, Any]:
        columns = {"name": Value(""), "mean": Value(0.0), "count": Count("pk"), "still_open": Value(0)} | told
        grouped = model._default_manager.filter(rollout__in=ids).order_by().values("rollout")
        return grouped.annotate(kind=Value(kind), **columns).values_list("kind", "rollout", *columns)

    tags = rows(RolloutTag, "tag", name=F("tag__name"))
    ratings = rows(Rating, "rating", mean=Avg("value"))
    comments = rows(Comment, "comment", still_open=Count("pk", filter=Q(parent=None, resolved_at=None))).filter(deleted_at=None)
    marks = rows(StepMark, "mark", name=F("mark"))
    return tags.union(ratings, comments, marks, all=True).order_by("name")
