"""Taking somebody out of a team: no session, token, socket or queued job of theirs is left in it, and what they did stays under their name.

Rooms that hold something of people ``register_leaving_hook`` what to let go. All of it is one transaction under the team's lock: it happens or it
does not.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from django.db import transaction
from django.db.models import Q, QuerySet
from django.db.models.functions import Now
from django.utils import timezone

from lab.lib.refusals import Refusal
from lab.lib.registry import Registry
from lab.teams.accounts.models import ApiToken, Invitation, JoinRequest, Membership, Team, User
from lab.teams.accounts.scope import TeamOwned
from lab.teams.accounts.sessions import end_sessions
from lab.teams.audit.recording import record_audit_entry
from lab.teams.people.member_rules import keeps_an_owner, may_touch, reload_member, require_manager

Hook = Callable[[Team, User], None]
Holds = Callable[[Team, User], "list[MemberHolding]"]


@dataclass(frozen=True)
class MemberHolding:
    """Something a person holds in a team, in words. ``stays``: it goes on when they leave, and somebody else has to look after it."""

    words: str
    stays: bool = False


HOOKS: Registry[Hook] = Registry("hook of leaving")
HOLDERS: Registry[Holds] = Registry("room in which people hold something")


def register_leaving_hook(room: str, hook: Hook | None, holds: Holds) -> None:
    """``hook`` lets go of what the person holds in the room, in the transaction in which they leave; ``holds`` says beforehand what that is."""
    if hook is not None:
        HOOKS.register(room, hook)
    HOLDERS.register(room, holds)


def register_waiting_work(room: str, model: type[TeamOwned], noun: str, *, queued: str, ended: str, verb: str) -> None:
    """What the person asked for and no worker has begun is not done: its ``status`` goes from ``queued`` to ``ended``, and ``verb`` says so."""

    def select_waiting(team: Team, user: User) -> QuerySet[Any]:
        rows: QuerySet[Any] = model.objects.of(team)
        return rows.filter(user=user, status=queued)

    def end_waiting(team: Team, user: User) -> None:
        select_waiting(team, user).update(status=ended, error="The person who started it has left the team. Run it again.", finished_at=Now())

    def list_waiting(team: Team, user: User) -> list[MemberHolding]:
        count = select_waiting(team, user).count()
        return [MemberHolding(f"{count} waiting {noun}{'s are' if count > 1 else ' is'} {verb}.")] if count else []

    register_leaving_hook(room, end_waiting, list_waiting)


def list_member_holdings(member: Membership, *, signed_in: bool = False) -> list[MemberHolding]:
    """What leaving would stop, revoke or free, and what would go on. ``signed_in``: they leave by themselves and keep their sessions."""
    team, user = member.team, member.user
    holdings = [] if signed_in else [session_words(team, user)]
    if tokens := tokens_of(team, user).count():
        holdings.append(MemberHolding(f"{tokens} access token{'s are' if tokens > 1 else ' is'} revoked."))
    if sent := invitations_of(team, user).filter(invited_by=user).count():
        holdings.append(MemberHolding(f"{sent} open invitation{'s' if sent > 1 else ''} to others {'are' if sent > 1 else 'is'} withdrawn."))
    for token in ApiToken.objects.filter(team=team, user=None, created_by=user, revoked_at=None):
        holdings.append(
            MemberHolding(
                f"The service token “{token.name}” ({token.prefix}…) stays valid: revoke it if its creator should not know its secret.", True
            )
        )
    for holds in HOLDERS.values():
        holdings += holds(team, user)
    return holdings


def session_words(team: Team, user: User) -> MemberHolding:
    if has_other_team(user, team):
        return MemberHolding("Every open page of this team closes; they stay signed in for other teams.")
    return MemberHolding("Signed out everywhere, and every open page closes, as there is no other team.")


def has_other_team(user: User, team: Team) -> bool:
    return Membership.objects.filter(user=user, active=True).exclude(team=team).exists()


def tokens_of(team: Team, user: User) -> QuerySet[ApiToken]:
    return ApiToken.objects.filter(team=team, user=user, revoked_at=None)


def let_go(member: Membership, by: User | None, *, signed_in: bool = False) -> None:
    """Ends all that lets the person in or works for them in the team; the membership has been ended already. Open pages of the team close."""
    team, user, now = member.team, member.user, timezone.now()
    tokens_of(team, user).update(revoked_at=now, revoked_by=by)
    invitations_of(team, user).update(revoked_at=now)
    JoinRequest.objects.filter(team=team, user=user, answered_at=None).update(answered_at=now, answered_by=by, accepted=False)
    for hook in HOOKS.values():
        hook(team, user)
    if not signed_in and not has_other_team(user, team):
        end_sessions(user)


def invitations_of(team: Team, user: User) -> QuerySet[Invitation]:
    """Open invitations that the person sent, or that would let them in again."""
    open_ones = Invitation.objects.filter(team=team, accepted_at=None, revoked_at=None)
    return open_ones.filter(Q(invited_by=user) | Q(email__iexact=user.email))


def deactivate_member(membership: Membership, by: User | None, *, operator: bool = False) -> Membership:
    """The person reaches nothing of the team any more. ``operator``: staff acting on the whole installation, whom the rules do not bind.

    Raises Refusal for the team's last owner, for oneself, and for who may not.
    """
    with transaction.atomic():
        member = reload_member(membership)
        if not operator:
            may_touch(require_manager(member.team, by), member)
        if not member.active:
            raise Refusal("This person is already deactivated.", "Reload the page.")
        keeps_an_owner(member)
        held = [holding.words for holding in list_member_holdings(member)]
        member.active, member.deactivated_at = False, timezone.now()
        member.save(update_fields=["active", "deactivated_at"])
        let_go(member, by)
        record_audit_entry("member.deactivate", member, team=member.team, actor=by, label=member.user.email, role=member.role, held=held)
    return member


def reactivate_member(membership: Membership, by: User | None, *, operator: bool = False) -> Membership:
    """Back with the role they had. Their tokens stay revoked and their runs stopped. Raises Refusal."""
    with transaction.atomic():
        member = reload_member(membership)
        if not operator:
            may_touch(require_manager(member.team, by), member)
        if member.active:
            raise Refusal("This person is already active.", "Reload the page.")
        member.active, member.deactivated_at = True, None
        member.save(update_fields=["active", "deactivated_at"])
        record_audit_entry("member.reactivate", member, team=member.team, actor=by, label=member.user.email, role=member.role)
    return member


def remove_member(membership: Membership, by: User | None, *, operator: bool = False) -> None:
    """Takes a deactivated person off the list of members; what they did stays under their name. Raises Refusal."""
    with transaction.atomic():
        member = reload_member(membership)
        if not operator:
            may_touch(require_manager(member.team, by), member)
        if member.active:
            raise Refusal("This person is still active.", "Deactivate them first.")
        record_audit_entry("member.remove", member, team=member.team, actor=by, label=member.user.email, role=member.role)
        member.delete()


def leave_team(membership: Membership) -> None:
    """Somebody takes themselves out. They stay signed in, to join or make another team. Raises Refusal for the last owner."""
    with transaction.atomic():
        member = reload_member(membership)
        if not member.active:
            raise Refusal("You are no longer in this team.", "Reload the page.")
        keeps_an_owner(member)
        member.active = False
        member.save(update_fields=["active"])
        let_go(member, member.user, signed_in=True)
        record_audit_entry("member.leave", member, team=member.team, actor=member.user, label=member.user.email, role=member.role)
        member.delete()
