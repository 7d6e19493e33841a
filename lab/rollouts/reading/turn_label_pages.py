"""The part of a rollout's page that shows its tree of turns, and what people send from it: verdicts on turns, preferences between branches.

A script asks for JSON and gets {"episode": the part as HTML, "made", "fresh"} or {"error", "field"}; a form without scripts comes back to the page.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect
from django.template.loader import render_to_string
from django.urls import reverse
from django.views.decorators.http import require_POST

from lab.lib.numbers import parse_whole_number
from lab.lib.refusals import Refusal
from lab.rollouts.annotations.turn_labels import judge_turn, prefer_across_rollouts, prefer_branch, read_turn_labels
from lab.rollouts.annotations.verbs import AnnotationChange
from lab.rollouts.reading.episode_forks import list_forks, list_windows
from lab.rollouts.reading.episode_nodes import count_branches, list_nodes
from lab.rollouts.reading.group_branches import find_shared_states
from lab.rollouts.reading.team_rollouts import get_team_rollout
from lab.rollouts.trajectories.models import Rollout
from lab.rollouts.trajectories.turn_tree import TurnTree, read_turn_trees
from lab.teams.accounts.models import User
from lab.teams.accounts.requests import LabRequest
from lab.teams.accounts.roles import has_team_permission


def read_rollout_tree(rollout: Rollout) -> TurnTree:
    return read_turn_trees([rollout]).get(rollout.pk) or TurnTree([])


def build_episode_context(request: HttpRequest, rollout: Rollout, tree: TurnTree) -> dict[str, Any]:
    """What ``reading/episode.html`` shows; nothing for a rollout without a tree."""
    user: User = request.user  # type: ignore[assignment]
    labels = read_turn_labels(user, rollout) if tree.nodes else {}
    nodes = list_nodes(tree, labels)
    return {
        "rollout": rollout,
        "nodes": nodes,
        "branches": count_branches(nodes),
        "forks": list_forks(tree, labels, rollout),
        "windows": list_windows(tree),
        "shared_states": find_shared_states(user, rollout, tree),
        "seats": list({line.seat: line.colour for line in nodes if line.is_written}.items()),
        "may_label": has_team_permission(request, "rollouts.annotate"),
        "labelled": sum(bool(label.mine or label.over) for label in labels.values()),
    }


def apply_turn_label(request: LabRequest, rollout_id: int, verb: Callable[[Rollout, TurnTree], AnnotationChange]) -> HttpResponse:
    rollout = get_team_rollout(request, rollout_id)
    tree = read_rollout_tree(rollout)
    wants_json = "application/json" in request.headers.get("Accept", "")
    back = reverse("rollout", args=[rollout.pk]) + "#episode"
    try:
        done = verb(rollout, tree)
    except Refusal as refused:
        if wants_json:
            return JsonResponse({"error": refused.message, "field": refused.field}, status=refused.status)
        messages.error(request, refused.message)
        return redirect(back)
    if not wants_json:
        return redirect(back)
    html = render_to_string("reading/episode.html", build_episode_context(request, rollout, tree), request)
    return JsonResponse({"episode": html, "made": done.made, "fresh": done.fresh}, headers={"Cache-Control": "no-store"})


@require_POST
def save_turn_verdict(request: LabRequest, rollout_id: int) -> HttpResponse:
    sent = request.POST
    return apply_turn_label(
        request, rollout_id, lambda rollout, tree: judge_turn(request.user, rollout, tree, sent.get("node", ""), sent.get("verdict", ""))
    )


@require_POST
def save_member_preference(request: LabRequest, rollout_id: int) -> HttpResponse:
    """Of the rollout's own turn at ``node`` and another member's (``other``: rollout:node) in the same state."""
    sent = request.POST
    name, _, node = sent.get("other", "").partition(":")

    def prefer(rollout: Rollout, tree: TurnTree) -> AnnotationChange:
        number = parse_whole_number(name)
        if number is None:
            raise Refusal("There is no such member. Reload the page.", field="other", status=400)
        member = get_team_rollout(request, number)
        other = (member, read_rollout_tree(member), node)
        return prefer_across_rollouts(request.user, (rollout, tree, sent.get("node", "")), other, sent.get("verdict", ""))

    return apply_turn_label(request, rollout_id, prefer)


@require_POST
def save_branch_preference(request: LabRequest, rollout_id: int) -> HttpResponse:
    sent = request.POST
    return apply_turn_label(
        request,
        rollout_id,
        lambda rollout, tree: prefer_branch(
            request.user, rollout, tree, sent.get("chosen", ""), sent.get("rejected", ""), withdraw=bool(sent.get("withdraw"))
        ),
    )
