"""Two rollouts of a prompt beside each other, and finding such a pair."""

from __future__ import annotations

from typing import Any

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.views.decorators.http import require_safe

from lab.lib.numbers import parse_whole_number
from lab.rollouts.comparison import finder
from lab.rollouts.comparison.compared_runs import read_chosen_runs
from lab.rollouts.comparison.pair import read_pair
from lab.rollouts.trajectories.models import Rollout
from lab.training.runs.models import Run


@require_safe
def compare_rollouts(request: HttpRequest) -> HttpResponse:
    """``?a=&b=``: both; ``?a=`` alone: what it can be compared with; ``?prompt=&run=&run=&by=step|reward``: leads to a pair of these runs."""
    if "prompt" in request.GET and "a" not in request.GET:
        return to_pair(request)
    if not request.GET.get("a"):
        return render(request, "comparison/rollouts.html", {"room": "compare"})
    left = get_compared_rollout(request, request.GET["a"])
    if not request.GET.get("b"):
        candidates = finder.list_pair_candidates(request.team, left)  # type: ignore[attr-defined]
        return render(request, "comparison/rollouts.html", {"room": "compare", "left": left, "candidates": candidates})
    right = get_compared_rollout(request, request.GET["b"])
    ignore_space = request.GET.get("space") == "ignore"
    context = {"room": "compare", "left": left, "right": right, "pair": read_pair(left, right, ignore_space), "ignore_space": ignore_space}
    return render(request, "comparison/rollouts.html", context)


def get_compared_rollout(request: HttpRequest, text: str) -> Rollout:
    """The team's rollout of that id, or 404."""
    mine = Rollout.objects.of(request.team).select_related("run", "prompt")  # type: ignore[attr-defined]
    return get_object_or_404(mine, pk=parse_id_or_404(text))


def parse_id_or_404(text: str) -> int:
    number = parse_whole_number(text)
    if number is None:
        raise Http404
    return number


def two_runs(request: HttpRequest, names: list[str]) -> tuple[Run, Run]:
    runs = read_chosen_runs(request.team, names).runs  # type: ignore[attr-defined]
    if len(runs) < 2:
        raise Http404
    return runs[0], runs[1]


def to_pair(request: HttpRequest) -> HttpResponse:
    left, right = two_runs(request, request.GET.getlist("run"))
    pair = finder.pick_rollout_pair(left, right, parse_id_or_404(request.GET.get("prompt", "")), request.GET.get("by", "step"))
    if pair is None:
        raise Http404
    return redirect(f"{reverse('compare-rollouts')}?a={pair[0]}&b={pair[1]}")


@require_safe
def compare_prompts(request: HttpRequest) -> HttpResponse:
    """A part of the comparison's page: prompts that runs ``a`` and ``b`` both answered, of those of ``?run=``."""
    chosen = read_chosen_runs(request.team, request.GET.getlist("run"))  # type: ignore[attr-defined]
    left, right = two_runs(request, [request.GET.get("a", ""), request.GET.get("b", "")])
    words = request.GET.get("q", "").replace("\0", "").strip()[: finder.SEARCH]
    shared, count = finder.shared_prompts(left, right, words)
    context: dict[str, Any] = {"runs": chosen.runs, "left": left, "right": right, "words": words, "shared": shared, "count": count}
    return render(request, "comparison/prompts.html", context)
