"""What admins do on the team's page: invite, answer requests, change a role, deactivate, reactivate, remove."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.template.response import TemplateResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST

from lab.lib.refusal_answers import note_refusal, run_act_and_redirect
from lab.lib.refusals import Refusal
from lab.teams.accounts.models import Invitation, JoinRequest
from lab.teams.accounts.requests import LabRequest
from lab.teams.people import departures, invitations, join_requests
from lab.teams.people.forms import InviteForm
from lab.teams.people.invitations import InvitationLinks
from lab.teams.people.mails import send_invitation
from lab.teams.people.pages import member_of, member_page, team_page
from lab.teams.people.roles import change_role


@require_POST
@never_cache
def invite_member(request: LabRequest) -> HttpResponse:
    """Answers with the link itself, once; it is stored nowhere."""
    form = InviteForm(request.POST, request.membership)
    if form.is_valid():
        with note_refusal(form):
            data = form.cleaned_data
            created = invitations.create_invitation(request.team, data["email"], data["role"], request.user, data.get("queues", ()))
            return render_created_invitation(request, created)
    form.fields["email"].widget.attrs["autofocus"] = True  # the form stands below the list
    return team_page(request, form, 422)


def render_created_invitation(request: LabRequest, created: InvitationLinks) -> HttpResponse:
    context = {"room": "team", "tab": "members", "invitation": created.invitation, "link": created.link, "mailed": send_invitation(created)}
    return TemplateResponse(request, "people/invited.html", context)


def invitation_of(request: LabRequest, invitation_id: int) -> Invitation:
    return get_object_or_404(Invitation.objects.filter(team=request.team).select_related("team"), pk=invitation_id)


@require_POST
@never_cache
def invitation_resend(request: LabRequest, invitation_id: int) -> HttpResponse:
    try:
        return render_created_invitation(request, invitations.send_again(invitation_of(request, invitation_id), request.user))
    except Refusal as refused:
        messages.error(request, str(refused))
        return redirect("team")


@require_POST
def invitation_withdraw(request: LabRequest, invitation_id: int) -> HttpResponse:
    invitation = invitation_of(request, invitation_id)
    return run_team_act(
        request,
        lambda: invitations.withdraw_invitation(invitation, request.user),
        f"The invitation of {invitation.email} was withdrawn; its link no longer works.",
    )


@require_POST
def request_answer(request: LabRequest, request_id: int) -> HttpResponse:
    """``act`` is ``let in``, with a role, or ``refuse``."""
    waits = JoinRequest.objects.filter(team=request.team).select_related("team", "user")
    join_request = get_object_or_404(waits, pk=request_id)
    role = request.POST.get("role", "none") if request.POST.get("act") == "let in" else ""
    words = f"{join_request.user} joined the team as {role}." if role else f"Request of {join_request.user} refused."
    return run_team_act(request, lambda: join_requests.answer_join_request(join_request, request.user, role), words)


def run_team_act(request: LabRequest, act: Callable[[], object], words: str) -> HttpResponse:
    def act_in_words() -> str:
        act()
        return words

    return run_act_and_redirect(request, act_in_words, "team")


@require_POST
def member_role(request: LabRequest, membership_id: int) -> HttpResponse:
    role = request.POST.get("role", "")
    return run_member_act(request, membership_id, partial(change_role, role=role), f"{{}} is {role} now.")


@require_POST
def member_deactivate(request: LabRequest, membership_id: int) -> HttpResponse:
    return run_member_act(
        request, membership_id, departures.deactivate_member, "{} was deactivated: their sessions, tokens and queued runs in this team have ended."
    )


@require_POST
def member_reactivate(request: LabRequest, membership_id: int) -> HttpResponse:
    return run_member_act(request, membership_id, departures.reactivate_member, "{} is active again, as {}.")


@require_POST
def member_remove(request: LabRequest, membership_id: int) -> HttpResponse:
    return run_member_act(request, membership_id, departures.remove_member, "{} was removed. Their work stays under their name.", to="team")


def run_member_act(request: LabRequest, membership_id: int, act: Callable[..., object], words: str, to: str = "") -> HttpResponse:
    """``act`` on a member; ``words`` with their name and role. Then ``to`` a page of the team, or back to theirs."""
    member = member_of(request, membership_id)
    try:
        act(member, by=request.user)
    except Refusal as refused:
        return member_page(request, member, str(refused), 409)
    messages.success(request, words.format(member.user, member.role))
    return redirect(to) if to else redirect("member", member.pk)
