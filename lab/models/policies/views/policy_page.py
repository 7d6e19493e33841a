"""One policy: what it is, what was measured, who preferred it, what it is called, and what may be done with it."""

from __future__ import annotations

import json
from typing import Any

from django.contrib import messages
from django.core.cache import cache
from django.db.models import Q
from django.http import HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_POST, require_safe

from lab.lib.refusal_answers import run_act_and_redirect
from lab.models.policies import blind_votes, download, gates, measures, promotion, removal
from lab.models.policies.checkpoint_paths import (
    FilesMissing,
    PolicyFile,
    files_of,
    format_checkpoint_label,
    format_checkpoint_step,
    has_checkpoint_files,
    read_policy_file,
)
from lab.models.policies.models import Alias, AliasMove, HubToken, Proposal, Push, Removal
from lab.models.policies.views.lookups import checkpoint_of, read_post_text
from lab.teams.accounts.permissions import explain_role_refusal
from lab.teams.accounts.requests import LabRequest
from lab.teams.accounts.roles import has_team_permission, role_of
from lab.training.runs.models import Checkpoint, Run, Status
from trainers.contract.steering_file import METHOD as STEERING

MOST_HASHED = 512 << 20  # bytes; larger files are hashed in the download, not for a page
OTHERS = 60  # runs offered as the other side
HISTORY = 20
FIRST = ("heldout/reward", "reward", "entropy", "kl")


@require_safe
def show_policy(request: LabRequest, checkpoint_id: int) -> HttpResponse:
    """``?alias=`` names the alias whose gate is shown."""
    checkpoint = checkpoint_of(request, checkpoint_id)
    there = has_checkpoint_files(checkpoint)
    gone = Removal.objects.filter(checkpoint=checkpoint).select_related("by").first()
    metrics = measures.at_steps([checkpoint], measures.names_of(checkpoint))[checkpoint.pk]
    context: dict[str, Any] = {
        "room": "policies",
        "checkpoint": checkpoint,
        "run": checkpoint.run,
        "which": format_checkpoint_step(checkpoint),
        "on_disk": there,
        "has_vector": checkpoint.final and STEERING in [choice.get("name") for choice in checkpoint.run.spec.get("methods") or []],
        "removal": gone if gone and gone.kept_at is None else None,
        "kept": gone is not None and gone.kept_at is not None,
        "reasons": removal.relied_on(request.team, [checkpoint])[checkpoint.pk] if there else [],
        "first_metrics": [(name, metrics[name]) for name in FIRST if name in metrics],
        "metrics": [(name, measure) for name, measure in metrics.items() if name not in FIRST],
        "evidence": blind_votes.collect_match_evidence([checkpoint])[checkpoint.pk],
        "config": config_of(checkpoint),
        "aliases": Alias.objects.filter(checkpoint=checkpoint),
        "moves": moves_of(checkpoint),
        "proposals": Proposal.objects.filter(checkpoint=checkpoint).select_related("alias", "asked_by", "decided_by").order_by("-pk")[:HISTORY],
        "pushes": Push.objects.filter(checkpoint=checkpoint).select_related("by")[:5],
        "hub_token": HubToken.objects.filter(team=request.team).exists(),
        "others": list_match_opponents(checkpoint),
        "refused_use": ""
        if has_team_permission(request, "policies.use")
        else explain_role_refusal("policies.use", role_of(request), str(request.team)),
        "refused_promote": ""
        if has_team_permission(request, "policies.promote")
        else explain_role_refusal("policies.promote", role_of(request), str(request.team)),
        **build_gate_context(request, checkpoint),
    }
    return render(request, "policies/policy.html", context)


def build_gate_context(request: LabRequest, checkpoint: Checkpoint) -> dict[str, Any]:
    """The alias that is looked at and what the checkpoint would need for it."""
    known = {alias.name: alias for alias in Alias.objects.filter(team=request.team).select_related("checkpoint__run")}
    names = list(dict.fromkeys([*gates.USUAL, *known]))
    name = request.GET.get("alias", "").strip().lower()
    name = name if name in names else gates.PRODUCTION
    alias = known.get(name)
    gate = gates.gate_of(alias, name)
    holder = gates.holder_of(alias)
    conditions = gates.evaluate_gate_conditions(alias, gate, checkpoint)
    return {
        "alias_names": names,
        "alias_name": name,
        "holder": holder if holder and holder.pk != checkpoint.pk else None,
        "holds": holder is not None and holder.pk == checkpoint.pk,
        "gated": gate is not None,
        "assignable": not gates.select_unmet_conditions(conditions),  # a second reviewer is never met before somebody approves
        "conditions": conditions,
        "waiting": Proposal.objects.filter(alias=alias, checkpoint=checkpoint, state="open").first() if alias else None,
    }


def moves_of(checkpoint: Checkpoint) -> list[AliasMove]:
    rows = AliasMove.objects.filter(Q(checkpoint=checkpoint) | Q(before=checkpoint)).select_related("alias", "by", "proposal")
    return list(rows[:HISTORY])


def list_match_opponents(checkpoint: Checkpoint) -> list[Run]:
    """Runs whose answers can stand against its own."""
    rows = Run.objects.of(checkpoint.run.team_id).filter(task=checkpoint.run.task, status=Status.FINISHED).exclude(trainer="reward")
    return list(rows.listed().exclude(pk=checkpoint.run_id).order_by("-number").only("pk", "number", "name")[:OTHERS])


def config_of(checkpoint: Checkpoint) -> str:
    """config.json (of adapters: theirs, as it would leave the lab); empty when it is gone."""
    try:
        return json.dumps(json.loads(read_policy_file(checkpoint, "config.json")), indent=2)
    except FilesMissing:
        pass
    except (ValueError, RecursionError):
        return ""
    try:
        return download.build_adapter_config(checkpoint).decode()
    except FilesMissing:
        return ""


@require_safe
def show_policy_files(request: LabRequest, checkpoint_id: int) -> HttpResponse:
    """The fragment with its files and their digests: reading weights takes a moment."""
    checkpoint = checkpoint_of(request, checkpoint_id)
    try:
        rows = [(file, load_cached_digest(checkpoint, file)) for file in files_of(checkpoint)]
        problem = ""
    except FilesMissing as error:
        rows, problem = [], str(error)
    context = {"checkpoint": checkpoint, "files": rows, "problem": problem, "most": MOST_HASHED, "total": sum(file.size for file, _ in rows)}
    return render(request, "policies/files.html", context)


def load_cached_digest(checkpoint: Checkpoint, file: PolicyFile) -> str:
    """Remembered for as long as the file is the same. Empty for what is not hashed for a page."""
    if not file.of_policy or file.size > MOST_HASHED:
        return ""
    key = f"policy-digest/{checkpoint.pk}/{file.name}/{file.size}/{file.changed}"
    return str(cache.get_or_set(key, lambda: download.compute_file_digest(checkpoint, file), 24 * 3600))


@require_safe
def download_policy(request: LabRequest, checkpoint_id: int) -> HttpResponseBase:
    """The archive; with ``?file=`` one file of it."""
    checkpoint = checkpoint_of(request, checkpoint_id)
    try:
        if name := request.GET.get("file", ""):
            return download.build_file_response(request, checkpoint, name)
        return download.build_archive_response(request, checkpoint)
    except FilesMissing as error:
        messages.error(request, str(error))
        return redirect("policy", checkpoint.pk)


@require_POST
def delete_policy(request: LabRequest, checkpoint_id: int) -> HttpResponse:
    checkpoint = checkpoint_of(request, checkpoint_id)

    def act() -> str:
        removal.request_removal(request.team, request.user, checkpoint)
        return f"{format_checkpoint_label(checkpoint)} will be deleted in 15 minutes; until then you can undo this."

    return run_act_and_redirect(request, act, reverse("policy", args=[checkpoint.pk]))


@require_POST
def keep_policy(request: LabRequest, checkpoint_id: int) -> HttpResponse:
    checkpoint = checkpoint_of(request, checkpoint_id)

    def act() -> str:
        removal.cancel_removal(request.team, request.user, checkpoint)
        return f"{format_checkpoint_label(checkpoint)} stays."

    return run_act_and_redirect(request, act, reverse("policy", args=[checkpoint.pk]))


@require_POST
def propose_policy_alias(request: LabRequest, checkpoint_id: int) -> HttpResponse:
    """Asks for the alias ``name``; with ``act=give`` an admin gives it at once, where its gate asks for no second reviewer."""
    checkpoint = checkpoint_of(request, checkpoint_id)
    name = read_post_text(request, "name", 100)

    def act() -> str:
        if request.POST.get("act") == "give":
            promotion.assign_alias(request.team, request.user, checkpoint, name, read_post_text(request, "reason"))
            return f"{format_checkpoint_label(checkpoint)} is “{promotion.normalize_alias_name(name)}” now."
        promotion.propose_alias(request.team, request.user, checkpoint, name, read_post_text(request, "reason"))
        return f"Asked: an admin decides whether {format_checkpoint_label(checkpoint)} becomes “{promotion.normalize_alias_name(name)}”."

    prefilled = name.lower() if promotion.NAME.fullmatch(name.lower()) else ""
    return run_act_and_redirect(request, act, f"{reverse('policy', args=[checkpoint.pk])}{f'?alias={prefilled}' if prefilled else ''}#gate")
