"""Two rollouts of a prompt beside each other, and finding such a pair."""

from __future__ import annotations

from typing import Any

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.views.decorators.http import require_safe

from lab.comparison import finder
from lab.comparison.chosen import read
from lab.comparison.pair import read_pair
from lab.runs.models import Run
from lab.trajectories.models import Rollout

MAX_ID = 2**63 - 1


@require_safe
def compare_rollouts(request: HttpRequest) -> HttpResponse:
    """``?a=&b=``: both; ``?a=`` alone: what it can be compared with; ``?prompt=&run=&run=&by=step|reward``: leads to a pair of these runs."""
    if "prompt" in request.GET and "a" not in request.GET:
        return to_pair(request)
    if not request.GET.get("a"):
        return render(request, "comparison/rollouts.html", {"room": "compare"})
    one = rollout_of(request, request.GET["a"])
    if not request.GET.get("b"):
        found = finder.candidates(request.team, one)  # type: ignore[attr-defined]
        return render(request, "comparison/rollouts.html", {"room": "compare", "one": one, "candidates": found})
    other = rollout_of(request, request.GET["b"])
    ignore_space = request.GET.get("space") == "ignore"
    context = {"room": "compare", "one": one, "other": other, "pair": read_pair(one, other, ignore_space), "ignore_space": ignore_space}
    return render(request, "comparison/rollouts.html", context)


def rollout_of(request: HttpRequest, text: str) -> Rollout:
    """The team's rollout of that id, or 404."""
    mine = Rollout.objects.of(request.team).select_related("run", "prompt")  # type: ignore[attr-defined]
    return get_object_or_404(mine, pk=identity(text))


def identity(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 20 and int(text) <= MAX_ID):
        raise Http404
    return int(text)


def two_runs(request: HttpRequest, names: list[str]) -> tuple[Run, Run]:
    runs = read(request.team, names).runs  # type: ignore[attr-defined]
    if len(runs) < 2:
        raise Http404
    return runs[0], runs[1]


def to_pair(request: HttpRequest) -> HttpResponse:
    one, other = two_runs(request, request.GET.getlist("run"))
    found = finder.pick(one, other, identity(request.GET.get("prompt", "")), request.GET.get("by", "step"))
    if found is None:
        raise Http404
    return redirect(f"{reverse('compare-rollouts')}?a={found[0]}&b={found[1]}")


@require_safe
def compare_prompts(request: HttpRequest) -> HttpResponse:
    """A part of the comparison's page: prompts that runs ``a`` and ``b`` both answered, of those of ``?run=``."""
    chosen = read(request.team, request.GET.getlist("run"))  # type: ignore[attr-defined]
    one, other = two_runs(request, [request.GET.get("a", ""), request.GET.get("b", "")])
    words = request.GET.get("q", "").replace("\0", "").strip()[: finder.SEARCH]
    shared, count = finder.shared_prompts(one, other, words)
    context: dict[str, Any] = {"runs": chosen.runs, "one": one, "other": other, "words": words, "shared": shared, "count": count}
    return render(request, "comparison/prompts.html", context)
