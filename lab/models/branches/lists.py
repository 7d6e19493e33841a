"""Branches where rollouts are read: fragments for the page of a rollout and of a group."""

from __future__ import annotations

from typing import Any

from django.db.models import Q
from django.http import Http404, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.views.decorators.http import require_safe

from lab.lib.numbers import MAX_INTEGER
from lab.models.branches.display import build_branch_rows, load_group_rewards, select_branches
from lab.rollouts.trajectories.models import Rollout
from lab.rollouts.trajectories.steps import PHASE_LABELS
from lab.teams.accounts.requests import LabRequest
from lab.training.runs.views.page import find_team_run

SHOWN = 20  # branches of a rollout or group, newest first


@require_safe
def list_rollout_branches(request: LabRequest, rollout_id: int) -> HttpResponse:
    """The block "Branches" of a rollout's page; ``?open=<id>`` unfolds one."""
    rollout = get_object_or_404(Rollout.objects.of(request.team).select_related("run").defer("completion"), pk=rollout_id)
    return render_branches(request, rollout, Q(rollout=rollout), "rollout")


@require_safe
def list_group_branches(request: LabRequest, run_id: Any, phase: str, step: int, group: int) -> HttpResponse:
    """The card "Branches" of a group's page: beside the members, never among them."""
    run = find_team_run(request, run_id)
    if phase not in PHASE_LABELS or max(step, group) > MAX_INTEGER:
        raise Http404
    members = Rollout.objects.filter(run=run, phase=phase, step=step, group=group).defer("completion")
    rollout = members.select_related("run").order_by("superseded", "-attempt", "sample").first()
    if rollout is None:
        raise Http404
    return render_branches(request, rollout, Q(rollout__run=run, rollout__phase=phase, rollout__step=step, rollout__group=group), "group")


def render_branches(request: LabRequest, rollout: Rollout, condition: Q, part: str) -> HttpResponse:
    rewards = load_group_rewards(rollout)
    branches = select_branches(request.team, condition)
    rows = build_branch_rows(branches[:SHOWN], rewards)
    context = {"rows": rows, "rewards": rewards, "rollout": rollout, "count": branches.count(), "part": part}
    return render(request, "branches/list.html", context)
