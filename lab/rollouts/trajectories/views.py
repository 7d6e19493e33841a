"""Pages over rollouts: the feed of a run, where its steps lie, and the tokens and the whole text of one rollout."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.views.decorators.http import require_safe

from lab.lib.numbers import parse_ids
from lab.rollouts.trajectories.alternatives import explain_missing_alternatives
from lab.rollouts.trajectories.answers import collect_answers
from lab.rollouts.trajectories.cards import whole_card, with_cards
from lab.rollouts.trajectories.feed import PAGE, Feed, read_feed
from lab.rollouts.trajectories.models import Rollout, RolloutTokens
from lab.rollouts.trajectories.selection import LAYOUTS, METHOD_VIEWS, ORDERS, TOKEN_VIEWS, Selection
from lab.rollouts.trajectories.step_summary import summarize_step_rollouts
from lab.rollouts.trajectories.steps import (
    PHASE_LABELS,
    list_offered_phases,
    list_replayed_ranges,
    list_rollout_steps,
    resolve_phase_and_step,
    rollouts_of,
)
from lab.rollouts.trajectories.tokens import build_tokens_json, explain_missing_tokens
from lab.teams.accounts.requests import LabRequest
from lab.training.runs.header import build_run_header
from lab.training.runs.models import Run
from lab.training.runs.run_marks import list_run_marks
from lab.training.runs.stack import stack_of
from lab.training.runs.views.page import find_team_run

PARTS = {"feed": "trajectories/rollouts.html#feed", "groups": "trajectories/rollouts.html#groups", "step": "trajectories/rollouts.html#step"}
LAYOUT_KEY = "rollouts_layout"  # in the session: cards or list, as the person chose last


@require_safe
def show_rollout_feed(request: HttpRequest, run_id: Any) -> HttpResponse:
    """The feed; ``?part=feed`` only what changes with the step, ``?part=groups`` only the groups, for "more", ``?part=step`` the groups
    under the numbers of their step, for the panel beside the charts.
    """
    run = find_team_run(request, run_id)
    selection = Selection.read(request.GET)
    part = request.GET.get("part", "")
    if selection.layout and request.GET.get("keep") == "1":
        request.session[LAYOUT_KEY] = selection.layout
        if not part:  # the address that is shown may be passed on: it changes nobody's choice
            return redirect(reverse("run-rollouts", args=[run.pk]) + selection.query(group=selection.group, row=selection.row))
    feed = read_feed(run, selection)
    context: dict[str, Any] = {"feed": feed, "asked_step": selection.step, "layout": choose_layout(request, selection)}
    if part != "groups" and feed.steps.step is not None:
        context["summary"] = summarize_step_rollouts(rollouts_of(run, feed.selection.phase, feed.selection.tries).filter(step=feed.steps.step))
    if part in ("groups", "step"):
        return render(request, PARTS[part], {"run": run, **context})
    context |= feed_bars(run, feed, following=selection.step is None)
    context["layouts"] = [(label, feed.selection.query(layout=name) + "&keep=1", name == context["layout"]) for name, label in LAYOUTS.items()]
    if part == "feed":
        return render(request, PARTS[part], {"run": run, **context})
    return render(request, "trajectories/rollouts.html", {**build_run_header(run, "rollouts"), **context})


def choose_layout(request: HttpRequest, selection: Selection) -> str:
    """Cards beside the charts; on the tab what the address says, else what the person chose last."""
    if request.GET.get("part") == "step":
        return "cards"
    remembered = request.session.get(LAYOUT_KEY)
    return selection.layout or (remembered if remembered in LAYOUTS else "cards")


def feed_bars(run: Run, feed: Feed, following: bool) -> dict[str, Any]:
    """What the feed offers to choose from, each with the address that chooses it."""
    chosen = feed.selection
    kept = {"phase": chosen.phase, "sort": "" if chosen.order == "order" else chosen.order, "tokens": chosen.tokens, "layout": chosen.layout}
    kept |= {name: "1" for name in ("tries", "zero", "filtered") if getattr(chosen, name)}
    return {
        "steps": feed.steps,
        "following": following,
        "step_fields": [(name, value) for name, value in kept.items() if value],
        "follow_query": chosen.query_following,
        "phases": [(phase, PHASE_LABELS[phase], chosen.query(phase=phase), phase == chosen.phase) for phase in feed.phases],
        "orders": [(label, chosen.query(order=name), name == chosen.order) for name, (label, _, _) in ORDERS.items()],
        "token_views": [(label, name, chosen.query(tokens=name), name == chosen.tokens) for name, label in token_views(run, chosen).items()],
        "replays": list_replayed_ranges(run) if feed.superseded or chosen.tries else [],
        "first_tries": chosen.query(tries=not chosen.tries),
        "zero_query": chosen.query(zero=not chosen.zero),
        "filtered_query": chosen.query(filtered=not chosen.filtered),
    }


def token_views(run: Run, chosen: Selection) -> dict[str, str]:
    """What tokens can be coloured by; by what methods gave them only in a run that has methods."""
    has_methods = bool(stack_of(run.spec).methods)
    return {name: label for name, label in TOKEN_VIEWS.items() if has_methods or name not in METHOD_VIEWS or name == chosen.tokens}


@require_safe
def run_steps(request: LabRequest, run_id: Any) -> HttpResponse:
    """Where the rollouts of a run lie, for the step slider of its pages: ``?phase=&step=`` as the feed takes them."""
    run = find_team_run(request, run_id)
    chosen = Selection.read(request.GET)
    phase, steps = resolve_phase_and_step(run, chosen.phase, chosen.step, chosen.tries)
    measured = list_rollout_steps(run, "heldout", False) if phase != "heldout" else []
    offered = [{"name": name, "label": PHASE_LABELS[name]} for name in list_offered_phases(run, phase)]
    body = {"phase": phase, "phases": offered, **asdict(steps), "measured": measured, "marks": list_run_marks(run, request.user)}
    return JsonResponse(body, headers={"Cache-Control": "no-store"})


@require_safe
def run_tokens(request: HttpRequest, run_id: Any) -> HttpResponse:
    """The tokens of up to a page of rollouts: ``?ids=1,2,3``. Rollouts of other runs and those without tokens are left out."""
    run = find_team_run(request, run_id)
    asked = request.GET.get("ids", "").split(",")[:PAGE]
    ids = parse_ids(asked)
    rows = RolloutTokens.objects.filter(rollout__in=ids, rollout__run=run).select_related("rollout")
    missing = explain_missing_alternatives(run.spec)
    encoded = [build_tokens_json(tokens.rollout, tokens, run.special_tokens, missing=missing) for tokens in rows]
    return JsonResponse({"rollouts": encoded}, headers={"Cache-Control": "no-store"})


@require_safe
def show_rollout_tokens(request: HttpRequest, rollout_id: int) -> HttpResponse:
    """All tokens of a rollout as JSON; ``?part=text`` its whole completion as a fragment, ``?part=raw`` as a text file, ``?part=card`` its card."""
    mine = Rollout.objects.of(request.team).select_related("run")  # type: ignore[attr-defined]
    rollout = get_object_or_404(mine, pk=rollout_id)
    part = request.GET.get("part", "")
    if part == "card":
        [card] = with_cards(Rollout.objects.filter(pk=rollout.pk, run=rollout.run), stack_of(rollout.run.spec).methods)
        return render(request, "trajectories/rollouts.html#one", {"answers": collect_answers([card], 1)})
    if part == "text":
        return render(request, "trajectories/completion.html", {"card": whole_card(rollout)})
    if part == "raw":
        headers = {"Content-Disposition": f'attachment; filename="rollout-{rollout.pk}.txt"', "X-Content-Type-Options": "nosniff"}
        return HttpResponse(rollout.completion, content_type="text/plain; charset=utf-8", headers=headers)
    packed = RolloutTokens.objects.filter(rollout=rollout).first()
    if packed is None:
        return JsonResponse({"id": rollout.pk, "error": explain_missing_tokens(rollout.run)})
    missing = explain_missing_alternatives(rollout.run.spec)
    body = build_tokens_json(rollout, packed, rollout.run.special_tokens, everything=True, missing=missing)
    return JsonResponse(body, headers={"Cache-Control": "no-store"})
