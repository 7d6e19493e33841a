"""What the browser knows of labels: its filter "Labelled", whether a rollout stands in an item with a label that counts, and its column of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.db.models.expressions import RawSQL
from django.utils.html import format_html_join
from django.utils.safestring import SafeString

from lab.labelling.labels.rollout_labels import PreferenceTally, judgements_about, tally_rollouts
from lab.rollouts.browse.cells import NOTHING, TableRow
from lab.rollouts.browse.columns import FURTHER, Column
from lab.rollouts.browse.conditions import ELSEWHERE
from lab.rollouts.browse.fields import FIELDS, make_flag_field
from lab.teams.accounts.models import Team

# Read as one set; the fence keeps the planner from asking rollout by rollout, for which the items have no index.
ROLLOUTS = """
SELECT unnest(item.rollouts) FROM labels_item item JOIN labels_queue queue ON queue.id = item.queue_id
WHERE queue.team_id = %s AND item.labels > 0 OFFSET 0
"""


def query_labelled_rollouts(team: Team) -> RawSQL:
    return RawSQL(ROLLOUTS, [team.pk])  # noqa: S611 a constant


def labels_of(team: Team, rollouts: Sequence[Any]) -> dict[int, PreferenceTally]:
    ids = [rollout.pk for rollout in rollouts]
    return tally_rollouts(judgements_about(team, {rollout.prompt_id for rollout in rollouts}, ids), ids) if ids else {}


def render_labels_cell(row: TableRow) -> SafeString:
    if "labels" not in row.loaded:
        return NOTHING
    parts = row.loaded["labels"].parts
    return format_html_join(" ", '<span class="nowrap" title="{}">{} {}</span>', ((name, sign, count) for name, sign, count in parts)) or NOTHING


HELP = "Labels from queues, counted in pairs: ▲ chosen, ▼ rejected, = tied; ✓ good, – neutral, ✗ bad."


def register_labels_column() -> None:
    FURTHER.register("labels", Column("labels", "Labels", render_labels_cell, "text", usual=False, help=HELP, load=labels_of))
    FIELDS.register("labelled", make_flag_field("labelled", "Labelled", "Has a label from a queue; skips do not count."))
    ELSEWHERE.register("labelled", query_labelled_rollouts)
