"""Aliases: who holds which, what it takes, who asks for one, and answering that."""

from __future__ import annotations

from typing import Any

from django.http import HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_POST, require_safe

from lab.accounts.permissions import refusal
from lab.accounts.roles import may, role_of
from lab.policies import gates, promotion
from lab.policies.models import Alias, Gate, Proposal, ProposalState
from lab.policies.places import label, present
from lab.policies.promotion import Refused
from lab.policies.views.found import alias_of, done, proposal_of, words
from lab.runs.views.request import LabRequest

MOST_VOTES = 100_000
DECIDED = 20  # newest that are listed


@require_safe
def aliases(request: LabRequest) -> HttpResponse:
    known = {alias.name: alias for alias in Alias.objects.filter(team=request.team).select_related("checkpoint__run", "gate__changed_by")}
    rows = []
    for name in dict.fromkeys([*gates.USUAL, *known]):
        alias = known.get(name)
        moves = list(alias.moves.select_related("by")[:10]) if alias else []
        gate = gates.gate_of(alias, name)
        held = bool(alias and alias.checkpoint)
        rows.append({"name": name, "alias": alias, "gate": gate, "moves": moves, "held": held, "before": moves[0].before_label if moves else ""})
    asked = Proposal.objects.filter(team=request.team).select_related("alias", "checkpoint__run", "asked_by", "decided_by").order_by("-pk")
    context = {
        "room": "policies",
        "rows": rows,
        "open": asked.filter(state=ProposalState.OPEN)[:100],
        "decided": asked.exclude(state=ProposalState.OPEN)[:DECIDED],
        "againsts": Gate.Against.choices,
        "usual": Gate(),
        "refused_promote": "" if may(request, "policies.promote") else refusal("policies.promote", role_of(request), str(request.team)),
    }
    return render(request, "policies/aliases.html", context)


@require_POST
def gate(request: LabRequest) -> HttpResponse:
    """Sets the gate of the alias ``name``, or with ``act=remove`` takes it away."""
    name = words(request, "name", 100)

    def act() -> str:
        if request.POST.get("act") == "remove":
            promotion.set_gate(request.team, request.user, name, None)
            return f"“{promotion.named(name)}” has no gate any more; admins give it at once."
        promotion.set_gate(request.team, request.user, name, fields(request))
        return f"The gate of “{promotion.named(name)}” is saved."

    return done(request, act, f"{reverse('aliases')}#alias-{name.lower() if promotion.NAME.fullmatch(name.lower()) else ''}")


def fields(request: LabRequest) -> dict[str, Any]:
    """Of a gate, from the form. Raises Refused."""
    votes, low = words(request, "votes", 20), words(request, "low", 20)
    if not (votes.isascii() and votes.isdigit() and int(votes) <= MOST_VOTES):
        raise Refused(f"Votes: give a whole number from 0 to {MOST_VOTES:,}, not “{votes[:40]}”.")
    try:
        share = float(low)
    except ValueError:
        share = -1.0
    if not 0 <= share < 100:
        raise Refused(f"Lower bound: give a percentage from 0 to 99, not “{low[:40]}”.")
    against = request.POST.get("against", "")
    checks = {name: request.POST.get(name) == "on" for name in ("complete", "second_reviewer", "no_recalls", "no_findings")}
    return {"votes": int(votes), "low": share / 100, "against": against if against in Gate.Against.values else Gate.Against.ANY, **checks}


@require_POST
def back(request: LabRequest, alias_id: int) -> HttpResponse:
    alias = alias_of(request, alias_id)

    def act() -> str:
        move = promotion.roll_back(request.team, request.user, alias, words(request, "comment"))
        return f"“{alias.name}” is {move.label} again."

    return done(request, act, f"{reverse('aliases')}#alias-{alias.name}")


@require_POST
def clear(request: LabRequest, alias_id: int) -> HttpResponse:
    alias = alias_of(request, alias_id)

    def act() -> str:
        promotion.take(request.team, request.user, alias, words(request, "comment"))
        return f"Nobody holds “{alias.name}” now."

    return done(request, act, f"{reverse('aliases')}#alias-{alias.name}")


@require_safe
def proposal(request: LabRequest, proposal_id: int) -> HttpResponse:
    found = proposal_of(request, proposal_id)
    is_open = found.state == ProposalState.OPEN
    approver = request.user if may(request, "policies.promote") else None
    conditions = promotion.standing(found, approver) if is_open else found.evidence
    missing = [one for one in conditions if is_open and one.met is False]
    context = {
        "room": "policies",
        "proposal": found,
        "checkpoint": found.checkpoint,
        "which": label(found.checkpoint),
        "there": present(found.checkpoint),
        "open": is_open,
        "conditions": conditions,
        "missing": missing,
        "holder": found.alias.checkpoint,
        "refused_promote": "" if approver else refusal("policies.promote", role_of(request), str(request.team)),
        "own": found.asked_by_id == request.user.pk,
    }
    return render(request, "policies/proposal.html", context)


@require_POST
def approve(request: LabRequest, proposal_id: int) -> HttpResponse:
    found = proposal_of(request, proposal_id)

    def act() -> str:
        move = promotion.approve(request.team, request.user, found, words(request, "comment"))
        return f"{move.label} is “{found.alias.name}” now."

    return done(request, act, reverse("proposal", args=[found.pk]))


@require_POST
def refuse(request: LabRequest, proposal_id: int) -> HttpResponse:
    found = proposal_of(request, proposal_id)

    def act() -> str:
        promotion.refuse(request.team, request.user, found, words(request, "comment"))
        return "Refused; whoever asked can read why."

    return done(request, act, reverse("proposal", args=[found.pk]))


@require_POST
def withdraw(request: LabRequest, proposal_id: int) -> HttpResponse:
    found = proposal_of(request, proposal_id)

    def act() -> str:
        promotion.withdraw(request.team, request.user, found)
        return "Withdrawn."

    return done(request, act, reverse("proposal", args=[found.pk]))
