"""Aliases: who holds which, what it takes, who asks for one, and answering that."""

from __future__ import annotations

from typing import Any

from django.http import HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_POST, require_safe

from lab.lib.numbers import parse_whole_number
from lab.lib.refusal_answers import run_act_and_redirect
from lab.lib.refusals import Refusal
from lab.models.policies import gates, promotion
from lab.models.policies.checkpoint_paths import format_checkpoint_label, has_checkpoint_files
from lab.models.policies.models import Alias, Gate, Proposal, ProposalState
from lab.models.policies.views.lookups import alias_of, proposal_of, read_post_text
from lab.teams.accounts.permissions import explain_role_refusal
from lab.teams.accounts.requests import LabRequest
from lab.teams.accounts.roles import has_team_permission, role_of

MOST_VOTES = 100_000
DECIDED = 20  # newest that are listed


@require_safe
def list_aliases(request: LabRequest) -> HttpResponse:
    known = {alias.name: alias for alias in Alias.objects.filter(team=request.team).select_related("checkpoint__run", "gate__changed_by")}
    rows = []
    for name in dict.fromkeys([*gates.USUAL, *known]):
        alias = known.get(name)
        moves = list(alias.moves.select_related("by")[:10]) if alias else []
        gate = gates.gate_of(alias, name)
        held = bool(alias and alias.checkpoint)
        rows.append({"name": name, "alias": alias, "gate": gate, "moves": moves, "held": held, "before": moves[0].before_label if moves else ""})
    proposals = Proposal.objects.filter(team=request.team).select_related("alias", "checkpoint__run", "asked_by", "decided_by").order_by("-pk")
    context = {
        "room": "policies",
        "rows": rows,
        "open": proposals.filter(state=ProposalState.OPEN)[:100],
        "decided": proposals.exclude(state=ProposalState.OPEN)[:DECIDED],
        "againsts": Gate.Against.choices,
        "usual": Gate(),
        "refused_promote": ""
        if has_team_permission(request, "policies.promote")
        else explain_role_refusal("policies.promote", role_of(request), str(request.team)),
    }
    return render(request, "policies/aliases.html", context)


@require_POST
def save_alias_gate(request: LabRequest) -> HttpResponse:
    """Sets the gate of the alias ``name``, or with ``act=remove`` takes it away."""
    name = read_post_text(request, "name", 100)

    def act() -> str:
        if request.POST.get("act") == "remove":
            promotion.set_gate(request.team, request.user, name, None)
            return f"“{promotion.normalize_alias_name(name)}” no longer has a gate; admins can assign it directly."
        promotion.set_gate(request.team, request.user, name, parse_gate_form(request))
        return f"Gate of “{promotion.normalize_alias_name(name)}” saved."

    return run_act_and_redirect(request, act, f"{reverse('aliases')}#alias-{name.lower() if promotion.NAME.fullmatch(name.lower()) else ''}")


def parse_gate_form(request: LabRequest) -> dict[str, Any]:
    """Of a gate, from the form. Raises Refusal."""
    votes, low = read_post_text(request, "votes", 20), read_post_text(request, "low", 20)
    votes_needed = parse_whole_number(votes, MOST_VOTES)
    if votes_needed is None:
        raise Refusal(f"Votes: enter a whole number from 0 to {MOST_VOTES:,}, not “{votes[:40]}”.")
    try:
        share = float(low)
    except ValueError:
        share = -1.0
    if not 0 <= share < 100:
        raise Refusal(f"Lower bound: enter a percentage from 0 to 99, not “{low[:40]}”.")
    against = request.POST.get("against", "")
    checks = {name: request.POST.get(name) == "on" for name in ("complete", "second_reviewer", "no_recalls", "no_unsafe", "no_findings")}
    return {"votes": votes_needed, "low": share / 100, "against": against if against in Gate.Against.values else Gate.Against.ANY, **checks}


@require_POST
def roll_back_alias(request: LabRequest, alias_id: int) -> HttpResponse:
    alias = alias_of(request, alias_id)

    def act() -> str:
        move = promotion.roll_back(request.team, request.user, alias, read_post_text(request, "comment"))
        return f"“{alias.name}” is {move.label} again."

    return run_act_and_redirect(request, act, f"{reverse('aliases')}#alias-{alias.name}")


@require_POST
def clear_alias(request: LabRequest, alias_id: int) -> HttpResponse:
    alias = alias_of(request, alias_id)

    def act() -> str:
        promotion.release_alias(request.team, request.user, alias, read_post_text(request, "comment"))
        return f"Nobody holds “{alias.name}” now."

    return run_act_and_redirect(request, act, f"{reverse('aliases')}#alias-{alias.name}")


@require_safe
def show_proposal(request: LabRequest, proposal_id: int) -> HttpResponse:
    proposal = proposal_of(request, proposal_id)
    is_open = proposal.state == ProposalState.OPEN
    approver = request.user if has_team_permission(request, "policies.promote") else None
    conditions = promotion.evaluate_proposal_conditions(proposal, approver) if is_open else proposal.evidence
    missing = [condition for condition in conditions if is_open and condition.met is False]
    context = {
        "room": "policies",
        "proposal": proposal,
        "checkpoint": proposal.checkpoint,
        "which": format_checkpoint_label(proposal.checkpoint),
        "on_disk": has_checkpoint_files(proposal.checkpoint),
        "open": is_open,
        "conditions": conditions,
        "missing": missing,
        "holder": proposal.alias.checkpoint,
        "refused_promote": "" if approver else explain_role_refusal("policies.promote", role_of(request), str(request.team)),
        "own": proposal.asked_by_id == request.user.pk,
    }
    return render(request, "policies/proposal.html", context)


@require_POST
def approve_proposal(request: LabRequest, proposal_id: int) -> HttpResponse:
    proposal = proposal_of(request, proposal_id)

    def act() -> str:
        move = promotion.approve_proposal(request.team, request.user, proposal, read_post_text(request, "comment"))
        return f"{move.label} is “{proposal.alias.name}” now."

    return run_act_and_redirect(request, act, reverse("proposal", args=[proposal.pk]))


@require_POST
def refuse_proposal(request: LabRequest, proposal_id: int) -> HttpResponse:
    proposal = proposal_of(request, proposal_id)

    def act() -> str:
        promotion.refuse_proposal(request.team, request.user, proposal, read_post_text(request, "comment"))
        return "Refusal; the requester can read your comment."

    return run_act_and_redirect(request, act, reverse("proposal", args=[proposal.pk]))


@require_POST
def withdraw_proposal(request: LabRequest, proposal_id: int) -> HttpResponse:
    proposal = proposal_of(request, proposal_id)

    def act() -> str:
        promotion.withdraw_proposal(request.team, request.user, proposal)
        return "Withdrawn."

    return run_act_and_redirect(request, act, reverse("proposal", args=[proposal.pk]))
