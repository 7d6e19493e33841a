"""Rollouts and groups that a report shows stay, whatever a retention rule says."""

from __future__ import annotations

from collections.abc import Iterable

from django.db.models import F

from lab.rollouts.trajectories.keepers import KEEPERS, RolloutKeeper
from lab.rollouts.trajectories.models import Rollout
from lab.teams.accounts.models import Team
from lab.watching.reports.blocks import GroupBlock, ParsedBlock, RolloutBlock
from lab.watching.reports.markup import parse_markup
from lab.watching.reports.models import ReportVersion


def find_reported_rollouts(team: Team) -> set[int]:
    """Those that the newest version of a report names, archived reports included."""
    newest = ReportVersion.objects.filter(report__team=team, number=F("report__number"))
    found: set[int] = set()
    for text in newest.values_list("text", flat=True).iterator():
        if "rollout" in text or "group" in text:
            found.update(find_named_rollouts(team, text))
    return found


def find_named_rollouts(team: Team, text: str) -> Iterable[int]:
    for part in parse_markup(text):
        match part.block if isinstance(part, ParsedBlock) else None:
            case RolloutBlock(id=named):
                yield named
            case GroupBlock() as block:
                members = Rollout.objects.filter(run__team=team, run__number=block.run, phase=block.phase, step=block.step, group=block.group)
                yield from members.values_list("pk", flat=True)


def register_reported_rollouts() -> None:
    KEEPERS.register("reports", RolloutKeeper("shown in a report", find=find_reported_rollouts))
