"""What the compared runs ran in, as one table: commit, data, policy and hardware of each run's last attempt, and the packages that differ."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lab.rollouts.comparison.configs import NOTHING, ComparedSetting
from lab.training.runs.environment import NOT_RECORDED, list_comparable_values
from lab.training.runs.models import Attempt, Run

PACKAGE = "package."


def find_last_attempts(runs: Sequence[Run]) -> dict[Any, Attempt]:
    """Run → its newest attempt."""
    attempts = Attempt.objects.filter(run__in=runs).select_related("packages").order_by("run", "-number").distinct("run")
    return {attempt.run_id: attempt for attempt in attempts}


def build_environment_table(runs: Sequence[Run]) -> list[ComparedSetting]:
    """What any run recorded, what differs first. Of packages only those that differ, and only where a run has told its whole list."""
    attempts = find_last_attempts(runs)
    values = [list_comparable_values(attempts.get(run.pk)) for run in runs]
    lists = [run.pk in attempts and attempts[run.pk].packages_id is not None for run in runs]
    recorded = [run.pk in attempts and attempts[run.pk].environment is not None for run in runs]

    def cell(index: int, name: str) -> str:
        told = lists[index] if name.startswith(PACKAGE) else recorded[index]
        return values[index].get(name) or (NOTHING if told else NOT_RECORDED)

    names = dict.fromkeys(name for told in values for name in told) if any(recorded) else ()
    rows = [ComparedSetting(name, [cell(index, name) for index in range(len(runs))]) for name in names]
    return sorted((row for row in rows if row.changed or not row.key.startswith(PACKAGE)), key=lambda row: not row.changed)
