"""Invitations: links for one address into one team with one role. Single use, seven days; only the hashes of their tokens are stored.

The link that is mailed proves that who opens it reads that address's mail, so the account it makes is verified. The link that the inviter sees,
to hand it over, opens the same and proves nothing: the inviter could use it.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from allauth.account.models import EmailAddress
from django.core.exceptions import ValidationError
from django.core.validators import validate_email
from django.db import transaction
from django.db.models import Q, QuerySet
from django.utils import timezone

from lab.lib.refusals import Refusal
from lab.teams.accounts.address_proof import mark_verified
from lab.teams.accounts.addresses import build_absolute_url, outer_path
from lab.teams.accounts.mail import has_mail_server
from lab.teams.accounts.models import Invitation, Membership, Role, Team, User
from lab.teams.accounts.permissions import LABELLERS
from lab.teams.accounts.setup_link import hash_link_token
from lab.teams.audit.models import Entry
from lab.teams.audit.recording import record_audit_entry
from lab.teams.people.member_rules import lock_team, may_give, require_manager
from lab.teams.people.queue_assignment import QueueAssignment, assign_queues, check_assignable_queues

VALID = timedelta(days=7)
MOST_A_DAY = 50  # links a team makes in 24 hours, those sent again included
NO_LONGER = "This invitation was withdrawn, or a newer link has replaced it."
ASK = "Ask the person who invited you for a new one."
USED = "If it was you, sign in. If not, reset the password: the link is sent to your address, and only you will have access."


@dataclass(frozen=True)
class InvitationLinks:
    """An invitation with its links, which can be shown and mailed now and never again."""

    invitation: Invitation
    link: str
    mailed_link: str  # the same as ``link`` without a mail server


@dataclass(frozen=True)
class NewMember:
    member: Membership
    assigned: QueueAssignment


def open_invitations(team: Team) -> QuerySet[Invitation]:
    """Neither used nor withdrawn; expired ones too, since they can be sent again."""
    invitations = Invitation.objects.filter(team=team, accepted_at=None, revoked_at=None)
    return invitations.select_related("invited_by").order_by("-created_at", "-pk")


def create_invitation(team: Team, email: str, role: str, by: User, queues: Collection[int] = ()) -> InvitationLinks:
    """``queues``: labelling queues they are assigned to on joining. Raises Refusal, with the field at fault."""
    email = clean_invited_address(email)
    tokens = InvitationTokens()
    with transaction.atomic():
        lock_team(team)
        may_give(require_manager(team, by), role)
        named = check_assignable_queues(team, role, queues)
        not_yet_here(team, email)
        under_limit(team)
        values = {
            "email": email,
            "role": role,
            "queues": list(named),
            **tokens.digests,
            "invited_by": by,
            "expires_at": timezone.now() + VALID,
        }
        invitation = Invitation.objects.create(team=team, **values)
        details: dict[str, Any] = {"queues": list(named.values())} if named else {}
        record_audit_entry("member.invite", invitation, actor=by, label=email, role=role, **details)
    return InvitationLinks(invitation, link_of(tokens.shown), link_of(tokens.mailed or tokens.shown))


class InvitationTokens:
    """Of a new invitation: ``shown`` to the inviter, ``mailed`` to the address; empty where no mail server takes it there."""

    def __init__(self) -> None:
        self.shown = secrets.token_urlsafe(32)
        self.mailed = secrets.token_urlsafe(32) if has_mail_server() else ""

    @property
    def digests(self) -> dict[str, str | None]:
        return {"digest": hash_link_token(self.shown), "mailed_digest": hash_link_token(self.mailed) if self.mailed else None}


def clean_invited_address(email: str) -> str:
    email = email.strip()
    try:
        validate_email(email)
    except ValidationError:
        raise Refusal("Not a valid e-mail address.", "Enter one, such as ada@example.org.", field="email", status=422) from None
    return User.objects.normalize_email(email)


def not_yet_here(team: Team, email: str) -> None:
    member = Membership.objects.filter(team=team, user__in=people_with(email)).select_related("user").first()
    if member is not None and member.active:
        raise Refusal(f"{email} is already in the team, as {member.role}.", "Change their role in the list instead.", field="email")
    if member is not None:
        raise Refusal(f"{email} was in the team and is deactivated.", "Reactivate them in the list of members instead.", field="email")
    if open_invitations(team).filter(email__iexact=email, expires_at__gt=timezone.now()).exists():
        raise Refusal(f"{email} has an open invitation.", "Send that one again, or withdraw it first.", field="email")
    open_invitations(team).filter(email__iexact=email).update(revoked_at=timezone.now())  # expired: this one takes its place


def under_limit(team: Team) -> None:
    count = Entry.objects.of(team).filter(action="member.invite", at__gt=timezone.now() - timedelta(days=1)).count()
    if count >= MOST_A_DAY:
        raise Refusal(f"This team has sent {count} invitations within a day; the limit is {MOST_A_DAY}.", "Try again tomorrow.", field="email")


def send_again(invitation: Invitation, by: User) -> InvitationLinks:
    """New links with seven days to them; the old ones are dead. Raises Refusal."""
    tokens = InvitationTokens()
    with transaction.atomic():
        lock_team(invitation.team)
        locked = still_open(invitation, by)
        under_limit(locked.team)
        locked.digest, locked.mailed_digest = hash_link_token(tokens.shown), tokens.digests["mailed_digest"]
        locked.expires_at, locked.invited_by = timezone.now() + VALID, by
        locked.save(update_fields=["digest", "mailed_digest", "expires_at", "invited_by"])
        record_audit_entry("member.invite", locked, actor=by, label=locked.email, role=locked.role, again=True)
    return InvitationLinks(locked, link_of(tokens.shown), link_of(tokens.mailed or tokens.shown))


def withdraw_invitation(invitation: Invitation, by: User) -> None:
    """Raises Refusal."""
    with transaction.atomic():
        lock_team(invitation.team)
        locked = still_open(invitation, by)
        locked.revoked_at = timezone.now()
        locked.save(update_fields=["revoked_at"])
        record_audit_entry("member.uninvite", locked, actor=by, label=locked.email, role=locked.role)


def still_open(invitation: Invitation, by: User) -> Invitation:
    actor = require_manager(invitation.team, by)
    current = open_invitations(invitation.team).filter(pk=invitation.pk).select_related("team").first()
    if current is None:
        raise Refusal("This invitation has been used or withdrawn.", "Reload the page.")
    may_give(actor, current.role)
    return current


def link_of(token: str) -> str:
    return build_absolute_url(outer_path("invited", token))


def people_with(email: str) -> QuerySet[User]:
    """Whose address this is: the one they sign in with, or another that they have proved."""
    proved = EmailAddress.objects.filter(email__iexact=email, verified=True).values("user")
    return User.objects.filter(Q(email__iexact=email) | Q(pk__in=proved))


def find_invitation(token: str) -> Invitation:
    """The invitation behind either link, if it can be used now. Raises Refusal with what the person can do."""
    invitation = with_token(token).select_related("team", "invited_by").first()
    if invitation is None or invitation.revoked_at is not None:
        raise Refusal(NO_LONGER, ASK)
    if invitation.accepted_at is not None:
        raise Refusal("This invitation has been used.", USED)
    if invitation.expires_at <= timezone.now():
        raise Refusal("This invitation has expired.", ASK)
    return invitation


def with_token(token: str) -> QuerySet[Invitation]:
    secret = hash_link_token(token)
    return Invitation.across_teams.filter(Q(digest=secret) | Q(mailed_digest=secret))


def came_by_mail(invitation: Invitation, token: str) -> bool:
    return has_mail_server() and invitation.mailed_digest == hash_link_token(token)


def is_for(invitation: Invitation, user: User) -> bool:
    return people_with(invitation.email).filter(pk=user.pk).exists()


def accept_invitation(token: str, user: User) -> NewMember:
    """Lets somebody with an account in, once. Raises Refusal."""
    with transaction.atomic():
        invitation = lock_invitation(token)
        if not is_for(invitation, user):
            raise Refusal(f"This invitation is for {invitation.email}; you are signed in as {user.email}.", "Sign out and open the link again.")
        return join_team(invitation, user)


def accept_as_new(token: str, name: str, password: str) -> NewMember:
    """Makes the account of the invited address and lets it in. The caller has checked name and password. Raises Refusal."""
    with transaction.atomic():
        invitation = lock_invitation(token)
        if people_with(invitation.email).exists():
            raise Refusal(f"{invitation.email} has an account.", "Sign in with it and open the link again.")
        first, _, last = name.strip().partition(" ")
        user = User.objects.create_user(invitation.email, password, first_name=first[:150], last_name=last[:150])
        if came_by_mail(invitation, token):
            mark_verified(user)
        return join_team(invitation, user)


def accept_all(user: User) -> None:
    """Lets in whom single sign-on has just made an account for: the provider has proved what the links of the open invitations would."""
    mine = Invitation.across_teams.filter(email__iexact=user.email, accepted_at=None, revoked_at=None, expires_at__gt=timezone.now())
    for invitation in mine.select_related("team"):
        with transaction.atomic():
            lock_team(invitation.team)
            if mine.filter(pk=invitation.pk).exists():
                join_team(invitation, user)


def used_by(token: str, user: User) -> Team | None:
    """The team, for somebody who opens a link again that they have used; nobody else is told anything."""
    invitation = with_token(token).filter(accepted_by=user).select_related("team").first()
    return invitation.team if invitation is not None else None


def lock_invitation(token: str) -> Invitation:
    """The invitation, and nobody else can use it until the transaction ends: of two people with one link, one gets in."""
    lock_team(find_invitation(token).team)
    return find_invitation(token)


def join_team(invitation: Invitation, user: User) -> NewMember:
    member, created = Membership.objects.get_or_create(team=invitation.team, user=user, defaults={"role": Role(invitation.role)})
    if not created and not member.active:
        raise Refusal("Your membership of this team is deactivated.", "Ask one of its admins to reactivate you.")
    invitation.accepted_at, invitation.accepted_by = timezone.now(), user
    invitation.save(update_fields=["accepted_at", "accepted_by"])
    assigned = assign_queues(invitation.team, user, invitation.queues) if member.role in LABELLERS else QueueAssignment()
    details: dict[str, Any] = {"role": member.role, "invited_by": str(invitation.invited_by or "")}
    details |= {"queues": list(assigned.to), "closed_queues": list(assigned.left_out)} if invitation.queues else {}
    record_audit_entry("member.join", member, team=invitation.team, actor=user, label=user.email, **details)
    return NewMember(member, assigned)
