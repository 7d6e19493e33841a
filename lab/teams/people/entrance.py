"""Pages outside a team: the teams one is in, making one, asking to be let in, and the page behind an invitation."""

from __future__ import annotations

from django.conf import settings
from django.contrib import messages
from django.contrib.auth import login
from django.contrib.auth.decorators import login_not_required
from django.http import HttpResponse
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods, require_safe

from lab.lib.refusal_answers import note_refusal
from lab.lib.refusals import Refusal
from lab.teams.accounts.address_proof import send_proof_mail
from lab.teams.accounts.addresses import outer_path
from lab.teams.accounts.models import Invitation, Membership, User
from lab.teams.accounts.requests import LabRequest
from lab.teams.accounts.views import BACKEND
from lab.teams.people import invitations, join_requests
from lab.teams.people.forms import JoinForm, NewAccountForm, NewTeamForm
from lab.teams.people.new_teams import make_team, may_make

READ_WRITE = ("GET", "HEAD", "POST")


@require_safe
def list_own_teams(request: LabRequest) -> HttpResponse:
    mine = Membership.objects.filter(user=request.user, active=True).select_related("team").order_by("team__name", "pk")
    return TemplateResponse(request, "people/teams.html", {"room": "account", "memberships": mine, "may_make": may_make(request.user)})


@require_http_methods(READ_WRITE)
def team_new(request: LabRequest) -> HttpResponse:
    form = NewTeamForm(request.POST or None)
    if request.method == "POST" and form.is_valid():
        with note_refusal(form):
            team = make_team(form.cleaned_data["name"], request.user)
            messages.success(request, f"Team {team.name} created. You are its owner.")
            return redirect(f"/t/{team.slug}/")
    context = {"room": "account", "form": form, "may_make": may_make(request.user)}
    return TemplateResponse(request, "people/new.html", context, status=422 if form.errors else 200)


@require_http_methods(READ_WRITE)
def request_to_join(request: LabRequest) -> HttpResponse:
    form = JoinForm(request.POST or None, initial={"team": request.GET.get("team", "")[:60]})
    if request.method == "POST" and form.is_valid():
        join_requests.create_join_request(request.user, form.cleaned_data["team"], form.cleaned_data["message"])
        messages.info(request, join_requests.SAID)
        return redirect(outer_path("teams"))
    return TemplateResponse(request, "people/join.html", {"room": "account", "form": form}, status=422 if form.errors else 200)


@login_not_required
@never_cache
@sensitive_post_parameters("password")
@require_http_methods(READ_WRITE)
def show_invitation(request: LabRequest, token: str) -> HttpResponse:
    """Lets in who is signed in with the invited address, and makes an account for who has none; everybody else is told what to do."""
    try:
        invitation = invitations.find_invitation(token)
        if request.user.is_authenticated:
            return invited_person(request, token, invitation)
        people = invitations.people_with(invitation.email)
        if people.exists():
            return render_invitation(
                request, invitation, sign_in=True, unproved=not people.filter(emailaddress__verified=True, emailaddress__primary=True).exists()
            )
        return new_account(request, token, invitation)
    except Refusal as refused:
        team = invitations.used_by(token, request.user) if request.user.is_authenticated else None
        if team is not None:  # a second click, or back from single sign-on
            return redirect(f"/t/{team.slug}/")
        return TemplateResponse(request, "people/invitation_gone.html", {"problem": refused, "used": invitations.USED}, status=410)


def invited_person(request: LabRequest, token: str, invitation: Invitation) -> HttpResponse:
    if not invitations.is_for(invitation, request.user):
        return render_invitation(request, invitation, status=403, other=True)
    if request.method == "POST":
        joined = invitations.accept_invitation(token, request.user)
        messages.success(request, f"You are in team {invitation.team.name}, as {invitation.role}.{joined.assigned.words}")
        return redirect(f"/t/{invitation.team.slug}/")
    return render_invitation(request, invitation)


def new_account(request: LabRequest, token: str, invitation: Invitation) -> HttpResponse:
    form = NewAccountForm(request.POST or None, invitation.email)
    if request.method == "POST" and form.is_valid():
        joined = invitations.accept_as_new(token, form.cleaned_data["name"], form.cleaned_data["password"])
        user = joined.member.user
        login(request, user, backend=BACKEND)
        send_proof_mail(request, user)  # nothing for who came by the mailed link
        messages.success(request, f"Welcome, {user}. You are in team {invitation.team.name}, as {invitation.role}.{joined.assigned.words}")
        return redirect(f"/t/{invitation.team.slug}/")
    return render_invitation(request, invitation, status=422 if form.errors else 200, form=form)


def render_invitation(request: LabRequest, invitation: Invitation, status: int = 200, **context: object) -> HttpResponse:
    """``sign_in``: the address has an account, ``unproved``: which somebody else may have made; ``other``: somebody else is signed in;
    ``form``: there is no account yet.
    """
    user = request.user if isinstance(request.user, User) else None
    return TemplateResponse(
        request,
        "people/invitation.html",
        {"invitation": invitation, "person": user, "single_sign_on": bool(settings.SOCIALACCOUNT_PROVIDERS), **context},
        status=status,
    )
