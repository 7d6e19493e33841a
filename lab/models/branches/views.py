"""Branching at a token: the panel, asking, watching, stopping, deleting, and pairs of what was written for a labelling queue."""

from __future__ import annotations

import secrets
from typing import Any
from uuid import UUID

from django.contrib import messages
from django.http import HttpResponse, JsonResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.views.decorators.http import require_POST, require_safe

from lab.lib.numbers import MAX_INTEGER, parse_whole_number
from lab.lib.refusals import Refusal
from lab.models.branches import requests
from lab.models.branches.display import build_alternatives_state, build_branch_state, describe_choice, load_group_rewards
from lab.models.branches.models import Branch, Choice, TokenAlternatives
from lab.models.branches.offered import choose_nearest_before, describe_distance, list_offered_checkpoints
from lab.models.branches.pairs import PairForm, list_pair_queues
from lab.models.branches.places import find_stored_place, read_temperature
from lab.models.branches.requests import AlternativesForm, BranchForm
from lab.rollouts.trajectories.models import Rollout
from lab.rollouts.trajectories.text_pieces import iterate_text_pieces
from lab.teams.accounts.requests import LabRequest
from lab.training.runs.form_tokens import act_once_per_token
from lab.training.workers.models import ANALYSIS, Worker

TOKEN_LENGTH = 64
QUEUES = 100  # of pairs, in the choice
NO_STORE = {"Cache-Control": "no-store"}
FIELDS = ("count", "temperature", "max_tokens", "seed")


def find_rollout(request: LabRequest, rollout_id: int) -> Rollout:
    """The team's rollout with its run and prompt, or 404."""
    rows = Rollout.objects.of(request.team).select_related("run__team", "prompt")
    rollout: Rollout = get_object_or_404(rows, pk=rollout_id)
    return rollout


def start_branch(request: LabRequest, rollout_id: int) -> HttpResponse:
    """The form (GET ``?token=``; with ``part=panel`` for the dialog of the rollout's page) and asking (POST)."""
    rollout = find_rollout(request, rollout_id)
    if request.method == "POST":
        form = BranchForm(rollout, request.POST)
        if not form.is_valid():
            return render_panel(request, rollout, parse_whole_number(request.POST.get("token"), MAX_INTEGER), form, 422)
        token = request.POST.get("once", "")[:TOKEN_LENGTH] or secrets.token_urlsafe(16)
        return redirect(act_once_per_token(request, f"branch/{token}", lambda: reverse("branch", args=[form.ask(request.user).pk])))
    return render_panel(request, rollout, parse_whole_number(request.GET.get("token"), MAX_INTEGER))


def render_panel(request: LabRequest, rollout: Rollout, index: int | None, form: BranchForm | None = None, status: int = 200) -> HttpResponse:
    """Raises Refusal for a token that cannot be branched at, with the reason."""
    place = find_stored_place(rollout, 0 if index is None else index)
    offered = list_offered_checkpoints(rollout)
    nearest = choose_nearest_before(offered)
    initial = {"count": 4, "temperature": read_temperature(rollout), "max_tokens": place.left, "seed": 0, "choice": Choice.POLICY}
    initial |= {"checkpoint": nearest.checkpoint.pk if nearest else None, "alternative": None}
    bound = form or BranchForm(rollout)
    context = {
        "room": "rollouts",
        "rollout": rollout,
        "run": rollout.run,
        "place": place,
        "before": list(iterate_text_pieces(place.before)),
        "offered": offered,
        "nearest": nearest,
        "form": bound,
        "fields": [bound[name] for name in FIELDS],
        "values": {name: bound[name].value() for name in bound.fields} if form else initial,
        "once": secrets.token_urlsafe(16),
        "served": Worker.objects.serving(ANALYSIS).exists(),
    }
    part = "#panel" if request.GET.get("part") == "panel" and status == 200 else ""
    context["heading"] = "h2" if part else "h1"  # the panel is a dialog of the rollout's page
    return render(request, f"branches/new.html{part}", context, status=status)


@require_POST
def ask_alternatives(request: LabRequest, rollout_id: int) -> JsonResponse:
    """Asks a checkpoint how likely which tokens were at a place; the answer is followed at ``alternatives-state``."""
    form = AlternativesForm(find_rollout(request, rollout_id), request.POST)
    if not form.is_valid():
        words = " ".join(str(error) for errors in form.errors.values() for error in errors)
        return JsonResponse({"message": words}, status=422, headers=NO_STORE)
    asked = form.ask(request.user)
    state = build_alternatives_state(asked)
    return JsonResponse({**state, "url": reverse("alternatives-state", args=[asked.pk])}, headers=NO_STORE)


@require_safe
def show_alternatives_state(request: LabRequest, alternatives_id: UUID) -> JsonResponse:
    rows = TokenAlternatives.objects.of(request.team).filter(pk=alternatives_id)
    rows.lose()
    return JsonResponse(build_alternatives_state(get_object_or_404(rows)), headers=NO_STORE)


def find_branch(request: LabRequest, branch_id: UUID) -> Branch:
    """The team's branch, or 404."""
    rows = Branch.objects.of(request.team).filter(pk=branch_id)
    rows.lose()
    branch: Branch = get_object_or_404(rows.select_related("team", "user", "rollout__run", "rollout__prompt", "checkpoint"))
    return branch


@require_safe
def show_branch(request: LabRequest, branch_id: UUID) -> HttpResponse:
    branch = find_branch(request, branch_id)
    return render(request, "branches/branch.html", describe_branch_page(request, branch))


def describe_branch_page(request: LabRequest, branch: Branch) -> dict[str, Any]:
    return {
        "room": "rollouts",
        "branch": branch,
        "rollout": branch.rollout,
        "run": branch.rollout.run,
        "chosen": describe_choice(branch),
        "distance": describe_distance(branch.behind),
        "rewards": load_group_rewards(branch.rollout),
        "state": build_branch_state(branch),
        "continuations": branch.continuations.all(),
        "numbers": range(branch.count),
        "queues": list_pair_queues(request.team)[:QUEUES],
        "served": not branch.is_open or Worker.objects.serving(ANALYSIS).exists(),
    }


@require_safe
def show_branch_state(request: LabRequest, branch_id: UUID) -> JsonResponse:
    """What the page draws, for scripts and for pages without a socket."""
    return JsonResponse(build_branch_state(find_branch(request, branch_id)), headers=NO_STORE)


@require_POST
def stop_branch_here(request: LabRequest, branch_id: UUID) -> HttpResponse:
    branch = find_branch(request, branch_id)
    if requests.stop_branch(branch):
        messages.success(request, "Stopped. Continuations so far are kept.")
    return redirect("branch", branch.pk)


@require_POST
def delete_branch_here(request: LabRequest, branch_id: UUID) -> HttpResponse:
    branch = find_branch(request, branch_id)
    try:
        requests.delete_branch(branch)
    except Refusal as error:
        messages.error(request, str(error))
        return redirect("branch", branch_id)
    messages.success(request, "The branch is deleted.")
    return redirect(f"{reverse('rollout', args=[branch.rollout_id])}?token={branch.place}")


@require_POST
def queue_branch_pairs(request: LabRequest, branch_id: UUID) -> HttpResponse:
    """Puts pairs into the chosen queue, or into a new one, and leads there."""
    branch = find_branch(request, branch_id)
    form = PairForm(branch, request.POST)
    try:
        if not form.is_valid():
            raise Refusal(" ".join(str(error) for errors in form.errors.values() for error in errors))
        queue, added = form.add(request.user)
    except Refusal as error:
        messages.error(request, str(error))
        return redirect("branch", branch.pk)
    messages.success(request, f"{added} pair{'s' * (added != 1)} added to {queue.name}." if added else f"{queue.name} has these pairs already.")
    return redirect("queue", queue.pk)
