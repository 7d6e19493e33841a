"""The page of one rollout: what was asked, what the policy and its world wrote, what was measured on each token, and where to go next."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_safe

from lab.lib.costly import limit_costly_requests
from lab.rollouts.reading.rollout_links import AdjacentRollouts, build_rollout_walk
from lab.rollouts.reading.team_rollouts import get_team_rollout
from lab.rollouts.reading.turn_label_pages import build_episode_context
from lab.rollouts.trajectories.cards import card_of, lengths_of
from lab.rollouts.trajectories.models import Rollout, RolloutTokens
from lab.rollouts.trajectories.packed_rollout import VERSION, pack_rollout
from lab.rollouts.trajectories.steps import PHASE_LABELS
from lab.rollouts.trajectories.text_pieces import CUT_AT, escape_invisible_text, iterate_text_pieces
from lab.rollouts.trajectories.turn_tree import read_turn_tree
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
    ("sampler", "Sampler"),
    ("advantage", "Advantage"),
    ("weight", "Weight"),
    ("mask", "Mask"),
)
MODES = (("", "Rendered"), ("text", "Raw text"), ("tokens", "Raw tokens"))
CLIPS = (90, 95, 98, 100)


@require_safe
@limit_costly_requests(lambda request: "re=" in request.GET.get("list", ""))
def show_rollout_page(request: HttpRequest, rollout_id: int) -> HttpResponse:
    rollout = get_team_rollout(request, rollout_id)
    listed = request.GET.get("list", "")[:LIST_LENGTH].removeprefix("?")
    way = build_rollout_walk(request.team, rollout, listed)  # type: ignore[attr-defined]
    carried = build_carried_query(request, listed)
    head = rollout.completion[:CUT_AT]
    lengths = lengths_of([rollout]).get(rollout.pk) if rollout.turns or rollout.nodes else None
    tree = read_turn_tree(rollout, lengths)
    where = {"phase": rollout.phase, "step": rollout.step}
    return render(
        request,
        "reading/trajectory.html",
        {
            "room": "rollouts",
            "run": rollout.run,
            "rollout": rollout,
            "card": card_of(rollout, head, len(rollout.completion), lengths, stack_of(rollout.run.spec).methods),
            "phase": PHASE_LABELS.get(rollout.phase, rollout.phase),
            "prompt_messages": build_prompt_messages(rollout),
            "reference": list(iterate_text_pieces(rollout.prompt.reference)),
            "ways": build_rollout_navigation(way, carried),
            "members": [{"id": pk, "sample": sample, "reward": reward} for pk, sample, reward in way.members],
            "step_url": f"{reverse('run-rollouts', args=[rollout.run_id])}?{urlencode(where)}",
            "replay_url": f"{reverse('what-if', args=[rollout.run_id])}?{urlencode({'step': rollout.step, 'group': rollout.group})}"
            if rollout.phase == "train"
            else "",
            "listed": listed,
            "carried": carried,
            **build_episode_context(request, rollout, tree),
            "packed_version": VERSION,
            "overlays": OVERLAYS,
            "modes": MODES,
            "clips": CLIPS,
        },
    )


def build_prompt_messages(rollout: Rollout) -> list[dict[str, Any]]:
    """The prompt's messages for the page; long ones start folded, those before the last sooner."""
    messages = [(escape_invisible_text(str(role)), str(content)) for role, content in rollout.prompt.messages]
    opened = [len(text) <= (FOLD_PROMPT if text is messages[-1][1] else FOLD_EARLIER) for _, text in messages]
    return [
        {"role": role, "pieces": list(iterate_text_pieces(text)), "characters": len(text), "open": is_open}
        for (role, text), is_open in zip(messages, opened, strict=True)
    ]


def build_carried_query(request: HttpRequest, listed: str) -> str:
    """The query string that goes along to other rollouts: how this one is looked at. Scripts renew it once they have started."""
    kept = {name: request.GET[name][:KEPT_LENGTH] for name in KEPT if name in request.GET}
    query = urlencode(({"list": listed} if listed else {}) | kept)
    return f"?{query}" if query else ""


def build_rollout_navigation(way: AdjacentRollouts, query: str) -> list[dict[str, Any]]:
    """The links of the keys in pairs, as they stand on the page."""
    listing_words = "in the list" if "list=" in query else "of the step"
    pairs = (
        ("rollout", ("k", f"Previous rollout {listing_words}", way.before), ("j", f"Next rollout {listing_words}", way.after)),
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
    rollout = get_team_rollout(request, rollout_id)
    tokens = RolloutTokens.objects.filter(rollout=rollout).first()
    body = pack_rollout(rollout, tokens, rollout.run.special_tokens)
    return HttpResponse(body, content_type="application/octet-stream", headers={"Cache-Control": "private, max-age=3600", "Vary": "Cookie"})
