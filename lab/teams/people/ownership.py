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

from lab.lib.refusal_answers import note_refusal
from lab.lib.refusals import Refusal
from lab.teams.accounts.addresses import outer_path
from lab.teams.accounts.models import Membership, Team
from lab.teams.accounts.requests import LabRequest
from lab.teams.accounts.second_factor import FACTORS
from lab.teams.audit.recording import record_audit_entry
from lab.teams.people import departures, team_deletion
from lab.teams.people.forms import DeleteForm, TeamForm, TransferForm
from lab.teams.people.member_rules import keeps_an_owner, lock_team
from lab.teams.people.roles import transfer_ownership

READ_WRITE = ("GET", "HEAD", "POST")


@require_http_methods(READ_WRITE)
def edit_team_settings(request: LabRequest) -> HttpResponse:
    form = TeamForm(request.POST or None, Team.objects.get(pk=request.team.pk), request.user)
    if request.method == "POST" and form.is_valid():
        save_team_settings(form)
        messages.success(request, "Saved." if form.changed_data else "Nothing was changed.")
        return redirect("team-settings")
    context = {"room": "team", "tab": "settings", "form": form, "slug": request.team.slug, "without_factor": without_factor(request.team)}
    return TemplateResponse(request, "people/settings.html", context, status=422 if form.errors else 200)


def without_factor(team: Team) -> int:
    """How many active members would have to set one up."""
    members = Membership.objects.filter(team=team, active=True, user__is_active=True)
    factors = Authenticator.objects.filter(user=OuterRef("user"), type__in=FACTORS)
    return members.filter(~Exists(factors)).count()


def save_team_settings(form: TeamForm) -> None:
    if not form.changed_data:
        return
    with transaction.atomic():
        before = lock_team(form.instance)
        changes: dict[str, Any] = {name: {"before": getattr(before, name), "after": form.cleaned_data[name]} for name in form.changed_data}
        form.instance.save(update_fields=form.changed_data)
        record_audit_entry("team.change", form.instance, **changes)


@sensitive_post_parameters("password")
@require_http_methods(READ_WRITE)
def handing_over(request: LabRequest) -> HttpResponse:
    """Asks for the password: a browser left open is not enough to give a team away."""
    form = TransferForm(request.POST if request.method == "POST" else None, request.membership)
    if request.method == "POST":
        if not ratelimit.consume(request, action="reauthenticate", user=request.user):
            form.add_error("password", "Too many attempts. Wait a minute.")
        elif form.is_valid():
            with note_refusal(form):
                transfer_ownership(request.membership, form.heir)
                messages.success(request, f"{form.heir.user} now owns the team; you are an admin.")
                return redirect("team")
    context = {"room": "team", "tab": "settings", "form": form}
    return TemplateResponse(request, "people/transfer.html", context, status=422 if form.errors else 200)


@require_http_methods(READ_WRITE)
def leave_current_team(request: LabRequest) -> HttpResponse:
    mine, problem = request.membership, cannot_leave(request.membership)
    if request.method == "POST":
        try:
            departures.leave_team(mine)
        except Refusal as refused:
            problem = str(refused)
        else:
            messages.success(request, f"You have left team {request.team.name}.")
            return redirect(outer_path("teams"))
    held = departures.list_member_holdings(mine, signed_in=True)
    ends, stays = ([holding.words for holding in held if holding.stays is stay] for stay in (False, True))
    context = {"room": "team", "tab": "leave", "ends": ends, "stays": stays, "problem": problem}
    return TemplateResponse(request, "people/leave.html", context, status=409 if problem and request.method == "POST" else 200)


def cannot_leave(mine: Membership) -> str:
    """Why not, so that the page says so before anybody presses a button; the verb looks again under the team's lock."""
    try:
        keeps_an_owner(mine)
    except Refusal as refused:
        return str(refused)
    return ""


@require_http_methods(READ_WRITE)
def delete_current_team(request: LabRequest) -> HttpResponse:
    form = DeleteForm(request.POST or None)
    if request.method == "POST" and form.is_valid():
        with note_refusal(form):
            team_deletion.delete_team(request.team, request.user, form.cleaned_data["name"])
            messages.success(request, f"Team {request.team.name} and all its data were deleted.")
            return redirect(outer_path("teams"))
    context = {
        "room": "team",
        "tab": "settings",
        "form": form,
        "hindrances": team_deletion.list_deletion_hindrances(request.team),
        "counts": team_deletion.count_team_objects(request.team),
    }
    return TemplateResponse(request, "people/delete.html", context, status=422 if form.errors else 200)
