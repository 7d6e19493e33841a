"""The list of the team's policies."""

from __future__ import annotations

from typing import Any

from django.http import HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from lab.data.loop.win_rate import FEW
from lab.models.policies import listing
from lab.models.policies.models import Proposal, ProposalState
from lab.models.policies.offered_policies import list_offered_policies
from lab.teams.accounts.requests import LabRequest
from lab.training.runs.curve_values import WORDS
from lab.training.runs.models import Run

COLUMNS = (
    ("run", "Policy", "c-name"),
    ("step", "Step", "num"),
    ("", "Recipe", "c-recipe"),
    ("heldout", "Held-out reward", "num"),
    ("reward", "Reward", "num"),
    ("entropy", "Token entropy", "num"),
    ("win", "Blind win rate", "c-win"),
    ("", "Aliases", ""),
    ("size", "Size", "num"),
    ("age", "Age", "num"),
)
SAID = {"heldout": WORDS["by_step"], "reward": "of its step", "entropy": "of its step"}  # which number of its run's curve it is


@require_safe
def list_policies(request: LabRequest) -> HttpResponse:
    query = listing.read_query(request.GET)
    policies = listing.build_policy_listing(request.team, query)
    anything = bool(policies.on_disk or policies.gone or listing.of_team(request.team).exists())
    context: dict[str, Any] = {
        "room": "policies",
        "query": query,
        "listing": policies,
        "page": policies.page,
        "rows": list(policies.page.object_list),
        "few": FEW,
        "columns": [
            (key, title, classes, query.toggled(key) if key else "", format_sort_direction(query, key), SAID.get(key, ""))
            for key, title, classes in COLUMNS
        ],
        "choices": listing.load_policy_filter_choices(request.team),
        "kinds": listing.KINDS,
        "anything": anything,
        "any_runs": anything or Run.objects.of(request.team).exists(),
        "waiting": Proposal.objects.filter(team=request.team, state=ProposalState.OPEN).count(),
        "offered": list_offered_policies(request.team),
        "show_gone": query.url(gone="1"),
        "hide_gone": query.url(gone=""),
        "show_twins": query.url(twins="1"),
        "hide_twins": query.url(twins=""),
        "newer": query.url(page=str(policies.page.number - 1)),
        "older": query.url(page=str(policies.page.number + 1)),
    }
    return render(request, "policies/list.html", context)


def format_sort_direction(query: listing.PolicyQuery, key: str) -> str:
    return "" if not key or query.key != key else "descending" if query.descending else "ascending"
