"""Completions of one group with equal text, among the rows of a page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence

from django.db.models.functions import MD5

from lab.rollouts.browse.cells import TableRow
from lab.rollouts.browse.pages import CUT_AT
from lab.rollouts.trajectories.answers import describe_reward_ranges
from lab.rollouts.trajectories.models import Rollout
from lab.teams.accounts.models import Team


def group_equal_rows(team: Team, rows: Sequence[TableRow]) -> list[list[TableRow]]:
    """The rows by what was answered to what, in the order of the first of each, which says how many it stands for."""
    digests = read_digests(team, rows)
    together: dict[Hashable, list[TableRow]] = {}
    for row in rows:
        together.setdefault((*list_group_and_start(row), digests.get(row.rollout.pk, "")), []).append(row)
    for equal in together.values():
        if len(equal) > 1:
            ranges = describe_reward_ranges([row.rollout for row in equal])
            equal[0].repeats = (f"{len(equal)} identical on this page: show all", *ranges)
    return list(together.values())


def list_group_and_start(row: TableRow) -> tuple[Hashable, ...]:
    rollout = row.rollout
    return (rollout.run_id, rollout.phase, rollout.step, rollout.group, rollout.prompt_id, rollout.superseded, rollout.head)


def read_digests(team: Team, rows: Sequence[TableRow]) -> dict[int, str]:
    """By id, for completions that begin alike and go on beyond what the page has of them: only those need a look."""
    starts = Counter(map(list_group_and_start, rows))
    unsure = [row.rollout.pk for row in rows if len(row.rollout.head) >= CUT_AT and starts[list_group_and_start(row)] > 1]
    if not unsure:
        return {}
    return dict(Rollout.objects.of(team).filter(pk__in=unsure).annotate(digest=MD5("completion")).values_list("pk", "digest"))
