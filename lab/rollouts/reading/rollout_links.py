"""Where the keys lead from one rollout: along a list or its step, through its group, to the same group of another step."""

from __future__ import annotations

from dataclasses import dataclass

from django.core.exceptions import TooManyFieldsSent
from django.db.models import Q, QuerySet
from django.http import QueryDict

from lab.rollouts.browse.pages import find_neighbour_ids
from lab.rollouts.browse.selection import Selection
from lab.rollouts.trajectories.models import Rollout
from lab.teams.accounts.models import Team


@dataclass(frozen=True)
class AdjacentRollouts:
    """Ids of rollouts; None where the way ends."""

    before: int | None  # k
    after: int | None  # j
    member_before: int | None  # p
    member_after: int | None  # n
    step_before: int | None  # [
    step_after: int | None  # ]
    members: tuple[tuple[int, int, float | None], ...]  # (id, sample, reward) of the group, in order


def build_rollout_walk(team: Team, rollout: Rollout, listed: str) -> AdjacentRollouts:
    """``listed`` is the query string of the browser's list the reader came from; without it j and k walk the rollout's step."""
    rows = select_phase_rollouts(rollout)
    group = rows.filter(step=rollout.step, group=rollout.group)
    members = tuple(group.order_by("sample", "pk").values_list("pk", "sample", "reward"))
    ids = [member[0] for member in members]
    at = ids.index(rollout.pk)
    selection = selection_of(listed)
    before, after = find_neighbour_ids(team, selection, rollout) if selection else along_the_step(rows, rollout)
    return AdjacentRollouts(
        before=before,
        after=after,
        member_before=ids[at - 1] if at else None,
        member_after=ids[at + 1] if at + 1 < len(ids) else None,
        step_before=other_step(rows, rollout, rows.filter(step__lt=rollout.step).order_by("-step")),
        step_after=other_step(rows, rollout, rows.filter(step__gt=rollout.step).order_by("step")),
        members=members,
    )


def selection_of(listed: str) -> Selection | None:
    """The list of that query string; None for no list, and for more parameters than any list has."""
    try:
        return Selection.read(QueryDict(listed)) if listed else None
    except TooManyFieldsSent:
        return None


def select_phase_rollouts(rollout: Rollout) -> QuerySet[Rollout]:
    """The rollouts of the same run and phase; for one that was replayed those of its own attempt."""
    rows = Rollout.objects.filter(run=rollout.run, phase=rollout.phase)
    return rows.filter(attempt=rollout.attempt) if rollout.superseded else rows.filter(superseded=False)


def along_the_step(rows: QuerySet[Rollout], rollout: Rollout) -> tuple[int | None, int | None]:
    """The rollouts before and after in the order (group, sample) of the step."""
    of_step = rows.filter(step=rollout.step)
    earlier = Q(group__lt=rollout.group) | Q(group=rollout.group, sample__lt=rollout.sample)
    later = Q(group__gt=rollout.group) | Q(group=rollout.group, sample__gt=rollout.sample)
    before = of_step.filter(earlier).order_by("-group", "-sample").values_list("pk", flat=True).first()
    after = of_step.filter(later).order_by("group", "sample").values_list("pk", flat=True).first()
    return before, after


def other_step(rows: QuerySet[Rollout], rollout: Rollout, towards: QuerySet[Rollout]) -> int | None:
    """The same member of the same group in the nearest other step that has the group, or that group's first member."""
    step = towards.filter(group=rollout.group).values_list("step", flat=True).first()
    if step is None:
        return None
    members = dict(rows.filter(step=step, group=rollout.group).order_by("-sample", "-pk").values_list("sample", "pk"))
    return members.get(rollout.sample) or members[min(members)]
