"""The team's retention rules with what they would delete, and the hub: its token and what was pushed."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from lab.accounts.permissions import refusal
from lab.accounts.roles import may, role_of
from lab.policies import hub_token, pushing, retention
from lab.policies.models import UNDER_WAY, HubToken, Push, Removal
from lab.policies.promotion import Refused
from lab.policies.views.found import checkpoint_of, done, push_of, words
from lab.runs.views.request import LabRequest

SHOWN = 200  # checkpoints of a preview
PUSHES = 50


@require_http_methods(["GET", "HEAD", "POST"])
def rules(request: LabRequest) -> HttpResponse:
    """The rules (GET), with an address that holds some a preview of those, and saving them (POST)."""
    if request.method == "POST":
        asked, errors = retention.read(request.POST, request.team)
        if "keep_last" not in request.POST:
            errors["keep_last"] = "The rules did not come with the form; nothing was saved. Reload the page and save again."
        if not errors:
            try:
                retention.save(request.team, request.user, asked)
            except Refused as error:
                messages.error(request, str(error))
            else:
                messages.success(request, "Saved. The rules are in force." if asked.active else "Saved. The rules are off: nothing is deleted.")
            return redirect("retention")
        return show(request, asked, errors, status=422)
    asked, errors = retention.read(request.GET, request.team) if "keep_last" in request.GET else (retention.rules_of(request.team), {})
    return show(request, asked, errors, status=422 if errors else 200)


def show(request: LabRequest, asked: Any, errors: dict[str, str], status: int = 200) -> HttpResponse:
    found = retention.plan(request.team, asked) if not errors else None
    due = Removal.objects.filter(team=request.team, deleted_at=None, kept_at=None).select_related("checkpoint__run", "by").order_by("due_at")
    deleted = Removal.objects.filter(team=request.team).exclude(deleted_at=None).select_related("checkpoint__run", "by").order_by("-deleted_at")
    context = {
        "room": "policies",
        "rules": asked,
        "saved": retention.rules_of(request.team),
        "errors": errors,
        "plan": found,
        "drop": found.drop[:SHOWN] if found else [],
        "keep": found.keep[:SHOWN] if found else [],
        "due": due[:SHOWN],
        "deleted": deleted[:SHOWN],
        "refused_promote": "" if may(request, "policies.promote") else refusal("policies.promote", role_of(request), str(request.team)),
    }
    return render(request, "policies/retention.html", context, status=status)


@require_safe
def hub(request: LabRequest) -> HttpResponse:
    context = {
        "room": "policies",
        "token": HubToken.objects.filter(team=request.team).select_related("stored_by").first(),
        "pushes": Push.objects.filter(team=request.team).select_related("checkpoint__run", "by")[:PUSHES],
        "refused_promote": "" if may(request, "policies.promote") else refusal("policies.promote", role_of(request), str(request.team)),
    }
    return render(request, "policies/hub.html", context)


@require_POST
def token(request: LabRequest) -> HttpResponse:
    """Stores ``secret``; with ``act=remove`` forgets it."""

    def act() -> str:
        if request.POST.get("act") == "remove":
            hub_token.remove(request.team, request.user)
            return "The token is removed. Pushes that have not begun will fail."
        hub_token.store(request.team, request.user, request.POST.get("secret", ""))
        return "The token is stored, encrypted. Nobody can read it here again."

    return done(request, act, reverse("policy-hub"))


@require_POST
def push(request: LabRequest, checkpoint_id: int) -> HttpResponse:
    checkpoint = checkpoint_of(request, checkpoint_id)

    def act() -> str:
        made = pushing.ask(request.team, request.user, checkpoint, words(request, "repository", 300), request.POST.get("public") != "on")
        return f"Queued: a worker pushes it to {made.repository}."

    return done(request, act, f"{reverse('policy', args=[checkpoint.pk])}#push")


@require_safe
def progress(request: LabRequest, push_id: int) -> HttpResponse:
    """The fragment of one push."""
    return render(request, "policies/push.html", {"push": push_of(request, push_id), "under_way": UNDER_WAY})


@require_POST
def cancel(request: LabRequest, push_id: int) -> HttpResponse:
    found = push_of(request, push_id)

    def act() -> str:
        if not pushing.cancel(request.team, request.user, found):
            raise Refused("It has ended already.")
        return "Cancelled; a worker in the middle of it stops at its next read."

    return done(request, act, f"{reverse('policy', args=[found.checkpoint_id])}#push")
