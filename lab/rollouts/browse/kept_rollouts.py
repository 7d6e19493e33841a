"""Rollouts that a saved view shows stay, whatever a retention rule says, where the view shows few: one that shows more is a search, no choice."""

from __future__ import annotations

from django.http import QueryDict

from lab.rollouts.browse.conditions import filter_matching_rollouts
from lab.rollouts.browse.models import SavedView
from lab.rollouts.browse.selection import Selection
from lab.rollouts.trajectories.keepers import KEEPERS, RolloutKeeper
from lab.teams.accounts.models import Team

MOST = 1000  # rollouts of a view


def find_viewed_rollouts(team: Team) -> set[int]:
    found: set[int] = set()
    for query in SavedView.objects.filter(team=team).values_list("query", flat=True).distinct():
        found |= find_rollouts_of_view(team, query)
    return found


def find_rollouts_of_view(team: Team, query: str) -> set[int]:
    """Its rollouts, those that its regular expression would leave out included; none where they are more than MOST or it cannot be read any more."""
    selection = Selection.read(QueryDict(query))
    if selection.problems or not (selection.filters or selection.words):
        return set()  # without a condition it shows whole runs
    ids = list(filter_matching_rollouts(team, selection).values_list("pk", flat=True)[: MOST + 1])
    return set(ids) if len(ids) <= MOST else set()


def register_viewed_rollouts() -> None:
    KEEPERS.register("views", RolloutKeeper(f"in a saved view of up to {MOST:,} rollouts", find=find_viewed_rollouts))
