"""One policy: what it is, what was measured, who preferred it, what it is called, and what may be done with it."""

from __future__ import annotations

import json
from typing import Any

from django.core.cache import cache
from django.db.models import Q
from django.http import HttpResponse, StreamingHttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_POST, require_safe

from lab.accounts.permissions import refusal
from lab.accounts.roles import may, role_of
from lab.policies import download, evidence, gates, measures, promotion, removal
from lab.policies.models import Alias, AliasMove, HubToken, Proposal, Push, Removal
from lab.policies.places import File, Missing, files_of, folder_of, label, read, short
from lab.policies.views.found import checkpoint_of, done, words
from lab.runs.models import Checkpoint, Run, Status
from lab.runs.views.request import LabRequest

MOST_HASHED = 512 << 20  # bytes; larger files are hashed in the download, not for a page
OTHERS = 60  # runs offered as the other side
HISTORY = 20
FIRST = ("heldout/reward", "reward", "entropy", "kl")


@require_safe
def policy(request: LabRequest, checkpoint_id: int) -> HttpResponse:
    """``?alias=`` names the alias whose gate is shown."""
    checkpoint = checkpoint_of(request, checkpoint_id)
    folder = folder_of(checkpoint)
    gone = Removal.objects.filter(checkpoint=checkpoint).select_related("by").first()
    metrics = measures.at_steps([checkpoint], measures.names_of(checkpoint))[checkpoint.pk]
    context: dict[str, Any] = {
        "room": "policies",
        "checkpoint": checkpoint,
        "run": checkpoint.run,
        "which": short(checkpoint),
        "there": folder is not None,
        "removal": gone if gone and gone.kept_at is None else None,
        "kept": gone is not None and gone.kept_at is not None,
        "reasons": removal.relied_on(request.team, [checkpoint])[checkpoint.pk] if folder is not None else [],
        "first_metrics": [(name, metrics[name]) for name in FIRST if name in metrics],
        "metrics": [(name, one) for name, one in metrics.items() if name not in FIRST],
        "evidence": evidence.of([checkpoint])[checkpoint.pk],
        "config": config_of(checkpoint),
        "aliases": Alias.objects.filter(checkpoint=checkpoint),
        "moves": moves_of(checkpoint),
        "proposals": Proposal.objects.filter(checkpoint=checkpoint).select_related("alias", "asked_by", "decided_by").order_by("-pk")[:HISTORY],
        "pushes": Push.objects.filter(checkpoint=checkpoint).select_related("by")[:5],
        "hub_token": HubToken.objects.filter(team=request.team).exists(),
        "others": others(checkpoint),
        "refused_use": "" if may(request, "policies.use") else refusal("policies.use", role_of(request), str(request.team)),
        "refused_promote": "" if may(request, "policies.promote") else refusal("policies.promote", role_of(request), str(request.team)),
        **gate(request, checkpoint),
    }
    return render(request, "policies/policy.html", context)


def gate(request: LabRequest, checkpoint: Checkpoint) -> dict[str, Any]:
    """The alias that is looked at and what the checkpoint would need for it."""
    known = {alias.name: alias for alias in Alias.objects.filter(team=request.team).select_related("checkpoint__run")}
    names = list(dict.fromkeys([*gates.USUAL, *known]))
    name = request.GET.get("alias", "").strip().lower()
    name = name if name in names else gates.GATED
    alias = known.get(name)
    found = gates.gate_of(alias, name)
    holder = gates.holder_of(alias)
    return {
        "alias_names": names,
        "alias_name": name,
        "holder": holder if holder and holder.pk != checkpoint.pk else None,
        "holds": holder is not None and holder.pk == checkpoint.pk,
        "gated": found is not None,
        "conditions": gates.conditions(alias, found, checkpoint),
        "waiting": Proposal.objects.filter(alias=alias, checkpoint=checkpoint, state="open").first() if alias else None,
    }


def moves_of(checkpoint: Checkpoint) -> list[AliasMove]:
    rows = AliasMove.objects.filter(Q(checkpoint=checkpoint) | Q(before=checkpoint)).select_related("alias", "by", "proposal")
    return list(rows[:HISTORY])


def others(checkpoint: Checkpoint) -> list[Run]:
    """Runs whose answers can stand against its own."""
    rows = Run.objects.filter(team=checkpoint.run.team_id, task=checkpoint.run.task, status=Status.FINISHED).exclude(trainer="reward")
    return list(rows.exclude(pk=checkpoint.run_id).order_by("-number").only("pk", "number", "name")[:OTHERS])


def config_of(checkpoint: Checkpoint) -> str:
    """config.json (of adapters: theirs, as it would leave the lab); empty when it is gone."""
    try:
        return json.dumps(json.loads(read(checkpoint, "config.json")), indent=2)
    except Missing:
        pass
    except (ValueError, RecursionError):
        return ""
    try:
        return download.adapters(checkpoint).decode()
    except Missing:
        return ""


@require_safe
def files(request: LabRequest, checkpoint_id: int) -> HttpResponse:
    """The fragment with its files and their digests: reading weights takes a moment."""
    checkpoint = checkpoint_of(request, checkpoint_id)
    try:
        rows = [(file, digest(checkpoint, file)) for file in files_of(checkpoint)]
        problem = ""
    except Missing as error:
        rows, problem = [], str(error)
    context = {"checkpoint": checkpoint, "files": rows, "problem": problem, "most": MOST_HASHED, "total": sum(file.size for file, _ in rows)}
    return render(request, "policies/files.html", context)


def digest(checkpoint: Checkpoint, file: File) -> str:
    """Remembered for as long as the file is the same. Empty for what is not hashed for a page."""
    if not file.of_policy or file.size > MOST_HASHED:
        return ""
    key = f"policy-digest/{checkpoint.pk}/{file.name}/{file.size}/{file.changed}"
    return str(cache.get_or_set(key, lambda: download.digest_of(checkpoint, file), 24 * 3600))


@require_safe
def fetch(request: LabRequest, checkpoint_id: int) -> HttpResponse | StreamingHttpResponse:
    """The archive."""
    checkpoint = checkpoint_of(request, checkpoint_id)
    try:
        return download.served(request, checkpoint)
    except Missing as error:
        return done(request, refused(str(error)), reverse("policy", args=[checkpoint.pk]))


def refused(words_: str) -> Any:
    def act() -> str:
        raise promotion.Refused(words_)

    return act


@require_POST
def delete(request: LabRequest, checkpoint_id: int) -> HttpResponse:
    checkpoint = checkpoint_of(request, checkpoint_id)

    def act() -> str:
        removal.ask(request.team, request.user, checkpoint)
        return f"{label(checkpoint)} is deleted in 15 minutes; until then it can be kept."

    return done(request, act, reverse("policy", args=[checkpoint.pk]))


@require_POST
def keep(request: LabRequest, checkpoint_id: int) -> HttpResponse:
    checkpoint = checkpoint_of(request, checkpoint_id)

    def act() -> str:
        removal.keep(request.team, request.user, checkpoint)
        return f"{label(checkpoint)} stays."

    return done(request, act, reverse("policy", args=[checkpoint.pk]))


@require_POST
def propose(request: LabRequest, checkpoint_id: int) -> HttpResponse:
    """Asks for the alias ``name``; with ``act=give`` an admin gives it at once, where no gate stands before it."""
    checkpoint = checkpoint_of(request, checkpoint_id)
    name = words(request, "name", 100)

    def act() -> str:
        if request.POST.get("act") == "give":
            promotion.give(request.team, request.user, checkpoint, name, words(request, "reason"))
            return f"{label(checkpoint)} is “{promotion.named(name)}” now."
        promotion.propose(request.team, request.user, checkpoint, name, words(request, "reason"))
        return f"Asked: an admin decides whether {label(checkpoint)} becomes “{promotion.named(name)}”."

    shown = name.lower() if promotion.NAME.fullmatch(name.lower()) else ""
    return done(request, act, f"{reverse('policy', args=[checkpoint.pk])}{f'?alias={shown}' if shown else ''}#gate")
