"""Invitations into the team: links for one address each, as on the team's page."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from django.http import HttpRequest
from ninja import Field, Schema, Status

from lab.edges.api.base import RequestBody, caller_of, make_router, one_of, require_permission
from lab.edges.api.idempotency import Key, run_idempotent_action
from lab.edges.api.operations.account import Person, serialize_person
from lab.teams.accounts.models import Invitation
from lab.teams.people import invitations
from lab.teams.people.invitations import InvitationLinks
from lab.teams.people.mails import send_invitation

router = make_router("Account")
WHY = "an invitation names who invites"


class InvitationOut(Schema):
    id: int
    email: str
    role: str = Field(examples=["researcher"])
    queues: list[int] = Field(description="Labelling queues they are assigned to on joining.")
    invited_by: Person | None
    created_at: datetime
    expires_at: datetime
    link: str = Field("", description="Only in the answer that made it: whoever opens it joins. Empty afterwards.")
    mailed: bool = Field(False, description="The link was sent to the address.")


class InvitationIn(RequestBody):
    email: str = Field(max_length=254, examples=["ada@example.org"])
    role: Literal["admin", "researcher", "annotator", "viewer"] = "researcher"
    queues: list[int] = Field([], max_length=200, description="Ids of labelling queues to assign them to.")


def serialize_invitation(invitation: Invitation) -> dict[str, Any]:
    fields = {name: getattr(invitation, name) for name in ("email", "role", "queues", "created_at", "expires_at")}
    return {**fields, "id": invitation.pk, "invited_by": serialize_person(invitation.invited_by) if invitation.invited_by else None}


def announce_links(created: InvitationLinks) -> dict[str, Any]:
    return {**serialize_invitation(created.invitation), "link": created.link, "mailed": send_invitation(created)}


@router.get("/invitations", auth=require_permission("members.manage"), response=list[InvitationOut], summary="Open invitations")
def list_invitations(request: HttpRequest) -> object:
    """Newest first, including expired ones, which can be sent again."""
    return [serialize_invitation(invitation) for invitation in invitations.open_invitations(caller_of(request).team)]


@router.post("/invitations", auth=require_permission("members.manage"), response={201: InvitationOut, 200: InvitationOut}, summary="Invite someone")
def invite(request: HttpRequest, given: InvitationIn, key: Key) -> object:
    """The link is single use, valid for seven days, and mailed if the lab has a mail server. A repeated request does not show it again."""
    caller = caller_of(request)
    user = caller.person(WHY)
    created: list[InvitationLinks] = []

    def act() -> list[Any]:
        created.append(invitations.create_invitation(caller.team, given.email, given.role, user, given.queues))
        return [created[0].invitation.pk]

    [made], _ = run_idempotent_action(request, caller, key, act)
    if created:
        return Status(201, announce_links(created[0]))
    return Status(200, serialize_invitation(one_of(Invitation.objects.of(caller.team).select_related("invited_by"), int(made))))


@router.post("/invitations/{int:invitation_id}/resend", auth=require_permission("members.manage"), response=InvitationOut, summary="Send it again")
def resend_invitation(request: HttpRequest, invitation_id: int) -> object:
    """A new link with seven days; earlier links stop working."""
    caller = caller_of(request)
    user = caller.person(WHY)
    return announce_links(invitations.send_again(one_of(Invitation.objects.of(caller.team).select_related("team"), invitation_id), user))


@router.delete("/invitations/{int:invitation_id}", auth=require_permission("members.manage"), response={204: None}, summary="Withdraw an invitation")
def withdraw_invitation(request: HttpRequest, invitation_id: int) -> object:
    """Its link stops working."""
    caller = caller_of(request)
    user = caller.person(WHY)
    invitations.withdraw_invitation(one_of(Invitation.objects.of(caller.team).select_related("team"), invitation_id), user)
    return Status(204, None)
