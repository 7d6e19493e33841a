"""The team's settings, handing it over, leaving and deleting it."""

from __future__ import annotations

from typing import Any

from allauth.core import ratelimit
from allauth.mfa.models import Authenticator
from django.contrib import messages
from django.db import transaction
from django.db.models import Exists, OuterRef
from django.http import HttpResponse
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods

from lab.accounts.addresses import outer_path
from lab.accounts.models import Membership, Team
from lab.accounts.second_factor import FACTORS
from lab.audit.recording import record
from lab.people import deleting, leaving
from lab.people.forms import DeleteForm, TeamForm, TransferForm, add_refusal
from lab.people.request import TeamRequest
from lab.people.roles import transfer
from lab.people.rules import Refused, keeps_an_owner, lock

READ_WRITE = ("GET", "HEAD", "POST")


@require_http_methods(READ_WRITE)
def settings(request: TeamRequest) -> HttpResponse:
    form = TeamForm(request.POST or None, Team.objects.get(pk=request.team.pk), request.user)
    if request.method == "POST" and form.is_valid():
        save(form)
        messages.success(request, "Saved." if form.changed_data else "Nothing was changed.")
        return redirect("team-settings")
    context = {"room": "team", "tab": "settings", "form": form, "slug": request.team.slug, "without_factor": without_factor(request.team)}
    return TemplateResponse(request, "people/settings.html", context, status=422 if form.errors else 200)


def without_factor(team: Team) -> int:
    """How many active members would have to set one up."""
    members = Membership.objects.filter(team=team, active=True, user__is_active=True)
    factors = Authenticator.objects.filter(user=OuterRef("user"), type__in=FACTORS)
    return members.filter(~Exists(factors)).count()


def save(form: TeamForm) -> None:
    if not form.changed_data:
        return
    with transaction.atomic():
        before = lock(form.instance)
        changes: dict[str, Any] = {name: {"before": getattr(before, name), "after": form.cleaned_data[name]} for name in form.changed_data}
        form.instance.save(update_fields=form.changed_data)
        record("team.change", form.instance, **changes)


@sensitive_post_parameters("password")
@require_http_methods(READ_WRITE)
def handing_over(request: TeamRequest) -> HttpResponse:
    """Asks for the password: a browser left open is not enough to give a team away."""
    form = TransferForm(request.POST if request.method == "POST" else None, request.membership)
    if request.method == "POST":
        if not ratelimit.consume(request, action="reauthenticate", user=request.user):
            form.add_error("password", "Too many tries. Wait a minute.")
        elif form.is_valid():
            try:
                transfer(request.membership, form.heir)
            except Refused as refused:
                add_refusal(form, refused)
            else:
                messages.success(request, f"{form.heir.user} owns the team now; you are an admin.")
                return redirect("team")
    context = {"room": "team", "tab": "settings", "form": form}
    return TemplateResponse(request, "people/transfer.html", context, status=422 if form.errors else 200)


@require_http_methods(READ_WRITE)
def leave(request: TeamRequest) -> HttpResponse:
    mine, problem = request.membership, cannot_leave(request.membership)
    if request.method == "POST":
        try:
            leaving.leave(mine)
        except Refused as refused:
            problem = str(refused)
        else:
            messages.success(request, f"You have left team {request.team.name}.")
            return redirect(outer_path("teams"))
    held = leaving.holdings(mine, signed_in=True)
    ends, stays = ([one.words for one in held if one.stays is stay] for stay in (False, True))
    context = {"room": "team", "tab": "leave", "ends": ends, "stays": stays, "problem": problem}
    return TemplateResponse(request, "people/leave.html", context, status=409 if problem and request.method == "POST" else 200)


def cannot_leave(mine: Membership) -> str:
    """Why not, so that the page says so before anybody presses a button; the verb looks again under the team's lock."""
    try:
        keeps_an_owner(mine)
    except Refused as refused:
        return str(refused)
    return ""


@require_http_methods(READ_WRITE)
def delete(request: TeamRequest) -> HttpResponse:
    form = DeleteForm(request.POST or None)
    if request.method == "POST" and form.is_valid():
        try:
            deleting.delete_team(request.team, request.user, form.cleaned_data["name"])
        except Refused as refused:
            add_refusal(form, refused)
        else:
            messages.success(request, f"Team {request.team.name} and all it owned are deleted.")
            return redirect(outer_path("teams"))
    context = {
        "room": "team",
        "tab": "settings",
        "form": form,
        "hindrances": deleting.hindrances(request.team),
        "counts": deleting.counts(request.team),
    }
    return TemplateResponse(request, "people/delete.html", context, status=422 if form.errors else 200)
