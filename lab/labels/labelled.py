"""The browser's filter "Labelled": whether a rollout stands in an item with a label that counts."""

from __future__ import annotations

from django.db.models.expressions import RawSQL

from lab.accounts.models import Team
from lab.browse.conditions import ELSEWHERE
from lab.browse.fields import FIELDS, flag

# Read as one set; the fence keeps the planner from asking rollout by rollout, for which the items have no index.
ROLLOUTS = """
SELECT unnest(item.rollouts) FROM labels_item item JOIN labels_queue queue ON queue.id = item.queue_id
WHERE queue.team_id = %s AND item.labels > 0 OFFSET 0
"""


def labelled(team: Team) -> RawSQL:
    return RawSQL(ROLLOUTS, [team.pk])  # noqa: S611 a constant


def register() -> None:
    FIELDS["labelled"] = flag("labelled", "Labelled", "Somebody has labelled it in a queue; skips do not count.")
    ELSEWHERE["labelled"] = labelled
