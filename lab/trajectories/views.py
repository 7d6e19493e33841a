"""Pages over rollouts: the feed of a run, and the tokens and the whole text of one rollout."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import get_object_or_404, render
from django.views.decorators.http import require_safe

from lab.runs.header import header
from lab.runs.models import Run
from lab.runs.stack import stack_of
from lab.runs.views.page import run_of
from lab.trajectories.feed import METHOD_VIEWS, ORDERS, PAGE, TOKEN_VIEWS, Selection, read_feed, whole_card
from lab.trajectories.models import Rollout, RolloutTokens
from lab.trajectories.steps import PHASE_LABELS, replays
from lab.trajectories.tokens import as_json

MAX_ID = 2**63 - 1
PARTS = {"feed": "trajectories/rollouts.html#feed", "groups": "trajectories/rollouts.html#groups"}


@require_safe
def rollouts(request: HttpRequest, run_id: Any) -> HttpResponse:
    """The feed; ``?part=feed`` only what changes with the step, ``?part=groups`` only the groups, for "more"."""
    run = run_of(request, run_id)
    selection = Selection.read(request.GET)
    feed = read_feed(run, selection)
    chosen = feed.selection
    context = {
        "feed": feed,
        "following": selection.step is None,
        "phases": [(PHASE_LABELS[phase], chosen.query(phase=phase), phase == chosen.phase) for phase in feed.phases],
        "orders": [(label, chosen.query(order=name), name == chosen.order) for name, (label, _, _) in ORDERS.items()],
        "token_views": [(label, name, chosen.query(tokens=name), name == chosen.tokens) for name, label in token_views(run, chosen).items()],
        "replays": replays(run) if feed.superseded or chosen.tries else [],
        "first_tries": chosen.query(tries=not chosen.tries),
    }
    part = PARTS.get(request.GET.get("part", ""))
    if part:
        return render(request, part, {"run": run, **context})
    return render(request, "trajectories/rollouts.html", {**header(run, "rollouts"), **context})


def token_views(run: Run, chosen: Selection) -> dict[str, str]:
    """What tokens can be coloured by; by what methods gave them only in a run that has methods."""
    has_methods = bool(stack_of(run.spec).methods)
    return {name: label for name, label in TOKEN_VIEWS.items() if has_methods or name not in METHOD_VIEWS or name == chosen.tokens}


@require_safe
def run_tokens(request: HttpRequest, run_id: Any) -> HttpResponse:
    """The tokens of up to a page of rollouts: ``?ids=1,2,3``. Rollouts of other runs and those without tokens are left out."""
    run = run_of(request, run_id)
    asked = request.GET.get("ids", "").split(",")[:PAGE]
    ids = [int(text) for text in asked if text.isascii() and text.isdigit() and len(text) < 19]
    rows = RolloutTokens.objects.filter(rollout__in=ids, rollout__run=run).select_related("rollout")
    found = [as_json(tokens.rollout, tokens, run.special_tokens) for tokens in rows]
    return JsonResponse({"rollouts": found}, headers={"Cache-Control": "no-store"})


@require_safe
def tokens(request: HttpRequest, rollout_id: int) -> HttpResponse:
    """All tokens of a rollout as JSON; ``?part=text`` its whole completion as a fragment, ``?part=raw`` as a text file."""
    if rollout_id > MAX_ID:
        return HttpResponse(status=404)
    mine = Rollout.objects.of(request.team).select_related("run")  # type: ignore[attr-defined]
    rollout = get_object_or_404(mine, pk=rollout_id)
    part = request.GET.get("part", "")
    if part == "text":
        return render(request, "trajectories/completion.html", {"card": whole_card(rollout)})
    if part == "raw":
        headers = {"Content-Disposition": f'attachment; filename="rollout-{rollout.pk}.txt"', "X-Content-Type-Options": "nosniff"}
        return HttpResponse(rollout.completion, content_type="text/plain; charset=utf-8", headers=headers)
    packed = RolloutTokens.objects.filter(rollout=rollout).first()
    if packed is None:
        return JsonResponse({"id": rollout.pk, "error": "this rollout came without tokens"})
    return JsonResponse(as_json(rollout, packed, rollout.run.special_tokens, everything=True), headers={"Cache-Control": "no-store"})
