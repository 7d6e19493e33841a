"""The tree of an episode, and of the episodes of a group: a picture, and the same as a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.urls import reverse
from django.views.decorators.http import require_safe

from lab.lib.numbers import MAX_INTEGER
from lab.rollouts.reading.merged_tree import merge_trees
from lab.rollouts.reading.team_rollouts import get_team_rollout
from lab.rollouts.reading.tree_picture import COLOURS, draw_tree
from lab.rollouts.trajectories.models import Rollout
from lab.rollouts.trajectories.steps import PHASE_LABELS
from lab.rollouts.trajectories.turn_tree import read_turn_trees
from lab.training.runs.models import Run

MOST_MEMBERS = 64
COLOUR_BY = {"reward": "Reward", "advantage": "Advantage"}


@require_safe
def show_rollout_tree(request: HttpRequest, rollout_id: int) -> HttpResponse:
    """The tree of one episode alone."""
    rollout = get_team_rollout(request, rollout_id)
    return render_tree_page(request, rollout.run, [rollout], alone=rollout)


@require_safe
def show_group_tree(request: HttpRequest, run_id: Any, phase: str, step: int, group: int) -> HttpResponse:
    run = get_object_or_404(Run.objects.of(request.team), pk=run_id)  # type: ignore[attr-defined]
    if phase not in PHASE_LABELS or max(step, group) > MAX_INTEGER:
        raise Http404
    rows = Rollout.objects.filter(run=run, phase=phase, step=step, group=group).order_by("-attempt", "sample", "pk")
    rollouts = list(rows[: 2 * MOST_MEMBERS])
    newest = [rollout for rollout in rollouts if rollout.attempt == rollouts[0].attempt][:MOST_MEMBERS]
    if not newest:
        raise Http404
    return render_tree_page(request, run, newest)


def render_tree_page(request: HttpRequest, run: Run, rollouts: Sequence[Rollout], alone: Rollout | None = None) -> HttpResponse:
    first = rollouts[0]
    colour = request.GET.get("colour", "")
    colour = colour if colour in COLOUR_BY else "reward"
    values = {rollout.pk: getattr(rollout, colour) for rollout in rollouts}
    trees = read_turn_trees(rollouts)
    place = [run.pk, first.phase, first.step, first.group]
    context: dict[str, Any] = {
        "room": "rollouts",
        "run": run,
        "first": first,
        "alone": alone,
        "phase_label": PHASE_LABELS.get(first.phase, first.phase),
        "group_url": reverse("group", args=place),
        "group_tree_url": reverse("group-tree", args=place),
        "colour": colour,
        "colour_choices": COLOUR_BY.items(),
        "members": len(rollouts),
        "with_tree": len(trees),
        "samples": {rollout.pk: rollout.sample for rollout in rollouts},
    }
    if trees:
        tree = merge_trees(rollouts, trees, values)
        picture = draw_tree(tree, values)
        context |= {"tree": tree, "picture": picture, "colours": range(COLOURS), "turns": len(tree.turns) - 1}
    return render(request, "reading/tree.html", context)
