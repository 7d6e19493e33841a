"""The page of one rollout: what was asked, what the policy and its world wrote, what was measured on each token, and where to go next."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.urls import reverse
from django.views.decorators.http import require_safe

from lab.lib.costly import limit_costly_requests
from lab.rollouts.reading.rollout_links import Walk, build_rollout_walk
from lab.rollouts.trajectories.feed import card_of, lengths_of
from lab.rollouts.trajectories.models import Rollout, RolloutTokens
from lab.rollouts.trajectories.packed_rollout import VERSION, pack_rollout
from lab.rollouts.trajectories.steps import PHASE_LABELS
from lab.rollouts.trajectories.text_pieces import CUT_AT, escape_invisible_text, iterate_text_pieces
from lab.training.runs.stack import stack_of

FOLD_PROMPT, FOLD_EARLIER = 1500, 200  # characters of the last message, and of those before it, that are shown without unfolding
LIST_LENGTH = 4000  # characters of ``list`` that are followed; more is no list of ours
KEPT, KEPT_LENGTH = ("mode", "tokens", "clip", "special", "spaces", "invisible", "ids", "token", "tokens_at"), 40  # as in trajectory.js
# Overlays in the order the key goes through them: (name, button).
OVERLAYS = (
    ("", "Off"),
    ("entropy", "Entropy"),
    ("logprob", "Log-p"),
    ("kl", "KL"),
    ("ratio", "Ratio"),
    ("advantage", "Advantage"),
    ("weight", "Weight"),
    ("mask", "Mask"),
)
MODES = (("", "Rendered"), ("text", "Raw text"), ("tokens", "Raw tokens"))
CLIPS = (90, 95, 98, 100)


def get_team_rollout(request: HttpRequest, rollout_id: int) -> Rollout:
    """The team's rollout with its run and prompt, or 404."""
    mine = Rollout.objects.of(request.team).select_related("run", "prompt")  # type: ignore[attr-defined]
    return get_object_or_404(mine, pk=rollout_id)


@require_safe
@limit_costly_requests(lambda request: "re=" in request.GET.get("list", ""))
def show_rollout_page(request: HttpRequest, rollout_id: int) -> HttpResponse:
    found = get_team_rollout(request, rollout_id)
    listed = request.GET.get("list", "")[:LIST_LENGTH].removeprefix("?")
    way = build_rollout_walk(request.team, found, listed)  # type: ignore[attr-defined]
    carried = build_carried_query(request, listed)
    head = found.completion[:CUT_AT]
    lengths = lengths_of([found]).get(found.pk) if found.turns else None
    where = {"phase": found.phase, "step": found.step}
    return render(
        request,
        "reading/trajectory.html",
        {
            "room": "rollouts",
            "run": found.run,
            "rollout": found,
            "card": card_of(found, head, len(found.completion), lengths, stack_of(found.run.spec).methods),
            "phase": PHASE_LABELS.get(found.phase, found.phase),
            "asked": build_prompt_messages(found),
            "reference": list(iterate_text_pieces(found.prompt.reference)),
            "ways": build_rollout_navigation(way, carried),
            "members": [{"id": pk, "sample": sample, "reward": reward} for pk, sample, reward in way.members],
            "step_url": f"{reverse('run-rollouts', args=[found.run_id])}?{urlencode(where)}",
            "replay_url": f"{reverse('what-if', args=[found.run_id])}?{urlencode({'step': found.step, 'group': found.group})}"
            if found.phase == "train"
            else "",
            "listed": listed,
            "carried": carried,
            "packed_version": VERSION,
            "overlays": OVERLAYS,
            "modes": MODES,
            "clips": CLIPS,
        },
    )


def build_prompt_messages(found: Rollout) -> list[dict[str, Any]]:
    """The prompt's messages for the page; long ones start folded, those before the last sooner."""
    shown = [(escape_invisible_text(str(role)), str(content)) for role, content in found.prompt.messages]
    opened = [len(text) <= (FOLD_PROMPT if text is shown[-1][1] else FOLD_EARLIER) for _, text in shown]
    return [
        {"role": role, "pieces": list(iterate_text_pieces(text)), "characters": len(text), "open": is_open}
        for (role, text), is_open in zip(shown, opened, strict=True)
    ]


def build_carried_query(request: HttpRequest, listed: str) -> str:
    """The query string that goes along to other rollouts: how this one is looked at. Scripts renew it once they have started."""
    kept = {name: request.GET[name][:KEPT_LENGTH] for name in KEPT if name in request.GET}
    query = urlencode(({"list": listed} if listed else {}) | kept)
    return f"?{query}" if query else ""


def build_rollout_navigation(way: Walk, query: str) -> list[dict[str, Any]]:
    """The links of the keys in pairs, as they stand on the page."""
    place = "in the list" if "list=" in query else "of the step"
    pairs = (
        ("rollout", ("k", f"Previous rollout {place}", way.before), ("j", f"Next rollout {place}", way.after)),
        ("member", ("p", "Previous member of the group", way.member_before), ("n", "Next member of the group", way.member_after)),
        ("step", ("[", "This group at the previous step", way.step_before), ("]", "This group at the next step", way.step_after)),
    )

    def link(sign: str, key: str, label: str, pk: int | None) -> dict[str, str]:
        return {"key": key, "label": label, "sign": sign, "url": reverse("rollout", args=[pk]) + query if pk else ""}

    return [{"name": name, "ways": [link("‹", *back), link("›", *forth)]} for name, back, forth in pairs]


@require_safe
def packed_tokens(request: HttpRequest, rollout_id: int) -> HttpResponse:
    """Text and arrays of the rollout (``lab.rollouts.trajectories.packed_rollout``).

    What lies there never changes, so the reader's browser may keep it.
    """
    found = get_team_rollout(request, rollout_id)
    tokens = RolloutTokens.objects.filter(rollout=found).first()
    body = pack_rollout(found, tokens, found.run.special_tokens)
    return HttpResponse(body, content_type="application/octet-stream", headers={"Cache-Control": "private, max-age=3600", "Vary": "Cookie"})
