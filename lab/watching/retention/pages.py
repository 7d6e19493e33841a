"""The team's rule on rollouts with what it would drop today."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods

from lab.lib.costly import limit_costly_requests
from lab.rollouts.trajectories.models import DroppedRollouts
from lab.teams.accounts.permissions import explain_role_refusal
from lab.teams.accounts.requests import LabRequest
from lab.teams.accounts.roles import has_team_permission, role_of
from lab.watching.retention import rules
from lab.watching.retention.models import RolloutRule
from lab.watching.retention.plan import plan_retention

SHOWN = 200  # runs of a list


@require_http_methods(["GET", "HEAD", "POST"])
@limit_costly_requests()
def edit_rollout_rule(request: LabRequest) -> HttpResponse:
    """The rule (GET), with an address that holds one a preview of that, and saving it (POST)."""
    given = request.POST if request.method == "POST" else request.GET
    if "rollouts_days" not in given:
        if request.method == "POST":
            return show_rule(request, rules.rule_of(request.team), {"form": "Not saved: the form had no rule. Reload the page and save again."})
        return show_rule(request, rules.rule_of(request.team), {})
    rule, errors = rules.parse_rule(given, request.team)
    if request.method != "POST" or errors:
        return show_rule(request, rule, errors)
    saved = rules.save_rule(request.team, request.user, rule)
    done = "Saved. The rule is applied at night, after 01:00 UTC." if saved.is_active else "Saved. All rollouts are kept."
    messages.success(request, done)
    return redirect("rollout-retention")


def show_rule(request: LabRequest, rule: RolloutRule, errors: dict[str, str]) -> HttpResponse:
    plan = plan_retention(rule) if not errors and rule.is_active else None
    dropped = DroppedRollouts.objects.filter(run__team=request.team, run__binned_at=None).exclude(dropped_at=None)
    may_manage = has_team_permission(request, "usage.manage")
    context: dict[str, Any] = {
        "room": "usage",
        "rule": rule,
        "saved": rules.rule_of(request.team),
        "errors": errors,
        "plan": plan,
        "losing": plan.runs[:SHOWN] if plan else [],
        "more": max(0, len(plan.runs) - SHOWN) if plan else 0,
        "dropped": dropped.select_related("run").order_by("-dropped_at")[:SHOWN],
        "refused": "" if may_manage else explain_role_refusal("usage.manage", role_of(request), str(request.team)),
    }
    return render(request, "retention/rule.html", context, status=422 if errors else 200)
