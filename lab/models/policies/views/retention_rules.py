"""The team's retention rules with what they would delete, and the hub: its token and what was pushed."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from lab.lib.refusal_answers import run_act_and_redirect
from lab.lib.refusals import Refusal
from lab.models.policies import hub_token, pushes, retention
from lab.models.policies.models import UNDER_WAY, HubToken, Push, Removal
from lab.models.policies.views.lookups import checkpoint_of, push_of, read_post_text
from lab.teams.accounts.permissions import explain_role_refusal
from lab.teams.accounts.requests import LabRequest
from lab.teams.accounts.roles import has_team_permission, role_of

SHOWN = 200  # checkpoints of a preview
PUSHES = 50


@require_http_methods(["GET", "HEAD", "POST"])
def edit_retention_rules(request: LabRequest) -> HttpResponse:
    """The rules (GET), with an address that holds some a preview of those, and saving them (POST)."""
    if request.method == "POST":
        rules, errors = retention.parse_retention_rules(request.POST, request.team)
        if "keep_last" not in request.POST:
            errors["keep_last"] = "Not saved: the form had no rules. Reload the page and save again."
        if not errors:
            try:
                retention.save_retention_rules(request.team, request.user, rules)
            except Refusal as error:
                messages.error(request, str(error))
            else:
                messages.success(request, "Saved. The rules are on." if rules.active else "Saved. The rules are off: nothing is deleted.")
            return redirect("retention")
        return render_retention_page(request, rules, errors, status=422)
    rules, errors = (
        retention.parse_retention_rules(request.GET, request.team) if "keep_last" in request.GET else (retention.rules_of(request.team), {})
    )
    return render_retention_page(request, rules, errors, status=422 if errors else 200)


def render_retention_page(request: LabRequest, rules: Any, errors: dict[str, str], status: int = 200) -> HttpResponse:
    plan = retention.plan_retention(request.team, rules) if not errors else None
    due = Removal.objects.filter(team=request.team, deleted_at=None, kept_at=None).select_related("checkpoint__run", "by").order_by("due_at")
    deleted = Removal.objects.filter(team=request.team).exclude(deleted_at=None).select_related("checkpoint__run", "by").order_by("-deleted_at")
    context = {
        "room": "policies",
        "rules": rules,
        "saved": retention.rules_of(request.team),
        "errors": errors,
        "plan": plan,
        "drop": plan.drop[:SHOWN] if plan else [],
        "keep": plan.keep[:SHOWN] if plan else [],
        "due": due[:SHOWN],
        "deleted": deleted[:SHOWN],
        "refused_promote": ""
        if has_team_permission(request, "policies.promote")
        else explain_role_refusal("policies.promote", role_of(request), str(request.team)),
    }
    return render(request, "policies/retention.html", context, status=status)


@require_safe
def show_hub_page(request: LabRequest) -> HttpResponse:
    context = {
        "room": "policies",
        "token": HubToken.objects.filter(team=request.team).select_related("stored_by").first(),
        "pushes": Push.objects.filter(team=request.team).select_related("checkpoint__run", "by")[:PUSHES],
        "refused_promote": ""
        if has_team_permission(request, "policies.promote")
        else explain_role_refusal("policies.promote", role_of(request), str(request.team)),
    }
    return render(request, "policies/hub.html", context)


@require_POST
def save_hub_token(request: LabRequest) -> HttpResponse:
    """Stores ``secret``; with ``act=remove`` forgets it."""

    def act() -> str:
        if request.POST.get("act") == "remove":
            hub_token.remove_hub_token(request.team, request.user)
            return "Token removed. Pushes that have not started will fail."
        hub_token.store_hub_token(request.team, request.user, request.POST.get("secret", ""))
        return "Token stored, encrypted. It is not shown again."

    return run_act_and_redirect(request, act, reverse("policy-hub"))


@require_POST
def push_checkpoint(request: LabRequest, checkpoint_id: int) -> HttpResponse:
    checkpoint = checkpoint_of(request, checkpoint_id)

    def act() -> str:
        push = pushes.request_push(
            request.team, request.user, checkpoint, read_post_text(request, "repository", 300), request.POST.get("public") != "on"
        )
        return f"Queued: a worker will push it to {push.repository}."

    return run_act_and_redirect(request, act, f"{reverse('policy', args=[checkpoint.pk])}#push")


@require_safe
def show_push_progress(request: LabRequest, push_id: int) -> HttpResponse:
    """The fragment of one push."""
    return render(request, "policies/push.html", {"push": push_of(request, push_id), "under_way": UNDER_WAY})


@require_POST
def cancel_push(request: LabRequest, push_id: int) -> HttpResponse:
    push = push_of(request, push_id)

    def act() -> str:
        if not pushes.cancel_push(request.team, request.user, push):
            raise Refusal("It has already ended.")
        return "Cancelled; a running upload stops at its next read."

    return run_act_and_redirect(request, act, f"{reverse('policy', args=[push.checkpoint_id])}#push")
