"""Invitations: a link for one address into one team with one role. Single use, seven days; only the hash of its token is stored.

The link proves that who opens it reads that address's mail, so the account it makes counts as verified.
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

from lab.accounts.addresses import absolute, outer_path
from lab.accounts.models import Invitation, Membership, Role, Team, User
from lab.accounts.permissions import LABELLERS
from lab.accounts.setup_link import digest
from lab.audit.models import Entry
from lab.audit.recording import record
from lab.people.assigning import Assigned, assign, assignable
from lab.people.rules import Refused, lock, manager, may_give

VALID = timedelta(days=7)
MOST_A_DAY = 50  # links a team makes in 24 hours, those sent again included
NO_LONGER = "This invitation was withdrawn, or a newer link has replaced it."
ASK = "Ask who invited you for a new one."


@dataclass(frozen=True)
class Made:
    """An invitation with its link, which can be shown now and never again."""

    invitation: Invitation
    link: str


@dataclass(frozen=True)
class Joined:
    member: Membership
    assigned: Assigned


def open_invitations(team: Team) -> QuerySet[Invitation]:
    """Neither used nor withdrawn; expired ones too, since they can be sent again."""
    found = Invitation.objects.filter(team=team, accepted_at=None, revoked_at=None)
    return found.select_related("invited_by").order_by("-created_at", "-pk")


def invite(team: Team, email: str, role: str, by: User, queues: Collection[int] = ()) -> Made:
    """``queues``: labelling queues they are assigned to on joining. Raises Refused, with the field at fault."""
    email = cleaned(email)
    token = secrets.token_urlsafe(32)
    with transaction.atomic():
        lock(team)
        may_give(manager(team, by), role)
        named = assignable(team, role, queues)
        not_yet_here(team, email)
        under_limit(team)
        values = {
            "email": email,
            "role": role,
            "queues": list(named),
            "digest": digest(token),
            "invited_by": by,
            "expires_at": timezone.now() + VALID,
        }
        made = Invitation.objects.create(team=team, **values)
        details: dict[str, Any] = {"queues": list(named.values())} if named else {}
        record("member.invite", made, actor=by, label=email, role=role, **details)
    return Made(made, link_of(token))


def cleaned(email: str) -> str:
    email = email.strip()
    try:
        validate_email(email)
    except ValidationError:
        raise Refused("This is no e-mail address.", "Write one, such as ada@example.org.", "email") from None
    return User.objects.normalize_email(email)


def not_yet_here(team: Team, email: str) -> None:
    member = Membership.objects.filter(team=team, user__in=people_with(email)).select_related("user").first()
    if member is not None and member.active:
        raise Refused(f"{email} is in the team already, as {member.role}.", "Change their role in the list instead.", "email")
    if member is not None:
        raise Refused(f"{email} was in the team and is deactivated.", "Reactivate them in the list of members instead.", "email")
    if open_invitations(team).filter(email__iexact=email, expires_at__gt=timezone.now()).exists():
        raise Refused(f"{email} has an open invitation.", "Send that one again, or withdraw it first.", "email")
    open_invitations(team).filter(email__iexact=email).update(revoked_at=timezone.now())  # expired: this one takes its place


def under_limit(team: Team) -> None:
    made = Entry.objects.of(team).filter(action="member.invite", at__gt=timezone.now() - timedelta(days=1)).count()
    if made >= MOST_A_DAY:
        raise Refused(f"This team has sent {made} invitations within a day, and {MOST_A_DAY} is the most.", "Go on tomorrow.", "email")


def send_again(invitation: Invitation, by: User) -> Made:
    """A new link with seven days to it; the old one is dead. Raises Refused."""
    token = secrets.token_urlsafe(32)
    with transaction.atomic():
        lock(invitation.team)
        found = still_open(invitation, by)
        under_limit(found.team)
        found.digest, found.expires_at, found.invited_by = digest(token), timezone.now() + VALID, by
        found.save(update_fields=["digest", "expires_at", "invited_by"])
        record("member.invite", found, actor=by, label=found.email, role=found.role, again=True)
    return Made(found, link_of(token))


def withdraw(invitation: Invitation, by: User) -> None:
    """Raises Refused."""
    with transaction.atomic():
        lock(invitation.team)
        found = still_open(invitation, by)
        found.revoked_at = timezone.now()
        found.save(update_fields=["revoked_at"])
        record("member.uninvite", found, actor=by, label=found.email, role=found.role)


def still_open(invitation: Invitation, by: User) -> Invitation:
    actor = manager(invitation.team, by)
    found = open_invitations(invitation.team).filter(pk=invitation.pk).select_related("team").first()
    if found is None:
        raise Refused("This invitation was used or withdrawn meanwhile.", "Reload the page.")
    may_give(actor, found.role)
    return found


def link_of(token: str) -> str:
    return absolute(outer_path("invited", token))


def people_with(email: str) -> QuerySet[User]:
    """Whose address this is: the one they sign in with, or another that they have proved."""
    proved = EmailAddress.objects.filter(email__iexact=email, verified=True).values("user")
    return User.objects.filter(Q(email__iexact=email) | Q(pk__in=proved))


def find(token: str) -> Invitation:
    """The invitation behind the link, if it can be used now. Raises Refused with what the person can do."""
    found = Invitation.objects.filter(digest=digest(token)).select_related("team", "invited_by").first()
    if found is None or found.revoked_at is not None:
        raise Refused(NO_LONGER, ASK)
    if found.accepted_at is not None:
        raise Refused("This invitation has been used.", "Sign in to open the lab.")
    if found.expires_at <= timezone.now():
        raise Refused("This invitation has expired.", ASK)
    return found


def is_for(invitation: Invitation, user: User) -> bool:
    return people_with(invitation.email).filter(pk=user.pk).exists()


def accept(token: str, user: User) -> Joined:
    """Lets somebody with an account in, once. Raises Refused."""
    with transaction.atomic():
        found = taken(token)
        if not is_for(found, user):
            raise Refused(f"This invitation is for {found.email}; you are signed in as {user.email}.", "Sign out and open the link again.")
        return join(found, user)


def accept_as_new(token: str, name: str, password: str) -> Joined:
    """Makes the account of the invited address and lets it in. The caller has checked name and password. Raises Refused."""
    with transaction.atomic():
        found = taken(token)
        if people_with(found.email).exists():
            raise Refused(f"{found.email} has an account.", "Sign in with it and open the link again.")
        first, _, last = name.strip().partition(" ")
        user = User.objects.create_user(found.email, password, first_name=first[:150], last_name=last[:150])
        EmailAddress.objects.update_or_create(user=user, email=user.email.lower(), defaults={"verified": True, "primary": True})
        return join(found, user)


def accept_all(user: User) -> None:
    """Lets in whom single sign-on has just made an account for: the provider has proved what the links of the open invitations would."""
    mine = Invitation.objects.filter(email__iexact=user.email, accepted_at=None, revoked_at=None, expires_at__gt=timezone.now())
    for invitation in mine.select_related("team"):
        with transaction.atomic():
            lock(invitation.team)
            if mine.filter(pk=invitation.pk).exists():
                join(invitation, user)


def used_by(token: str, user: User) -> Team | None:
    """The team, for somebody who opens a link again that they have used; nobody else is told anything."""
    found = Invitation.objects.filter(digest=digest(token), accepted_by=user).select_related("team").first()
    return found.team if found is not None else None


def taken(token: str) -> Invitation:
    """The invitation, and nobody else can use it until the transaction ends: of two people with one link, one gets in."""
    lock(find(token).team)
    return find(token)


def join(invitation: Invitation, user: User) -> Joined:
    member, made = Membership.objects.get_or_create(team=invitation.team, user=user, defaults={"role": Role(invitation.role)})
    if not made and not member.active:
        raise Refused("You were in this team and are deactivated.", "Ask one of its admins to reactivate you.")
    invitation.accepted_at, invitation.accepted_by = timezone.now(), user
    invitation.save(update_fields=["accepted_at", "accepted_by"])
    assigned = assign(invitation.team, user, invitation.queues) if member.role in LABELLERS else Assigned()
    details: dict[str, Any] = {"role": member.role, "invited_by": str(invitation.invited_by or "")}
    details |= {"queues": list(assigned.to), "closed_queues": list(assigned.left_out)} if invitation.queues else {}
    record("member.join", member, team=invitation.team, actor=user, label=user.email, **details)
    return Joined(member, assigned)
