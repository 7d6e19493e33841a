"""The rollout that a page of this room is about."""

from __future__ import annotations

from django.http import HttpRequest
from django.shortcuts import get_object_or_404

from lab.rollouts.trajectories.models import Rollout


def get_team_rollout(request: HttpRequest, rollout_id: int) -> Rollout:
    """The team's rollout with its run and prompt, or 404."""
    mine = Rollout.objects.of(request.team).select_related("run", "prompt")  # type: ignore[attr-defined]
    return get_object_or_404(mine, pk=rollout_id)
