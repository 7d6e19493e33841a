"""What was said about rollouts, in short, for lists: one query for a page of any size."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from django.db import connection

from lab.lib.numbers import write_id_array
from lab.rollouts.annotations.models import StepVerdict

# Four tables in one look, and written out: to most rollouts nobody has said anything, and then a list pays for round trips and for composing queries.
SAID = """
SELECT 'tag' AS kind, tagged.rollout_id, tag.name AS name, 0::float8, 0, 0
FROM annotations_rollouttag tagged JOIN annotations_tag tag ON tag.id = tagged.tag_id WHERE tagged.rollout_id = ANY(%(ids)s::bigint[])
UNION ALL
SELECT 'rating', rollout_id, '', avg(value)::float8, count(*), 0 FROM annotations_rating WHERE rollout_id = ANY(%(ids)s::bigint[]) GROUP BY rollout_id
UNION ALL
SELECT 'comment', rollout_id, '', 0, count(*), count(*) FILTER (WHERE parent_id IS NULL AND resolved_at IS NULL)
FROM annotations_comment WHERE rollout_id = ANY(%(ids)s::bigint[]) AND deleted_at IS NULL GROUP BY rollout_id
UNION ALL
SELECT 'mark', rollout_id, mark, 0, count(*), 0 FROM annotations_stepmark WHERE rollout_id = ANY(%(ids)s::bigint[]) GROUP BY rollout_id, mark
ORDER BY name
"""


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
    marks: dict[str, int] = field(default_factory=lambda: dict.fromkeys(StepVerdict.values, 0))

    def __bool__(self) -> bool:
        return bool(self.tags or self.ratings or self.comments or any(self.marks.values()))


def summarize_annotations(rollout_ids: Iterable[int]) -> dict[int, Summary]:
    """A summary for every id, empty for rollouts nobody said anything about. The ids must be of the reader's team already."""
    summaries = {rollout: Summary() for rollout in rollout_ids}
    for kind, rollout, name, mean, count, still_open in said_of(list(summaries)) if summaries else ():
        summary = summaries[rollout]
        if kind == "tag":
            summary.tags.append(name)
        elif kind == "rating":
            summary.rating, summary.ratings = mean, count
        elif kind == "comment":
            summary.comments, summary.open = count, still_open
        else:
            summary.marks[name] = count
    return summaries


def said_of(ids: list[int]) -> list[tuple[str, int, str, float, int, int]]:
    """Kind, rollout, name (of a tag or a mark), mean (of ratings), how many, and how many threads are open; by name."""
    with connection.cursor() as cursor:
        cursor.execute(SAID, {"ids": write_id_array(ids)})
        return cursor.fetchall()
