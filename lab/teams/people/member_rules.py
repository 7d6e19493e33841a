"""Who may do what to whom in a team. The permission table lets admins manage members; what stands here decides about which of them.

Owners are made and unmade by owners only, a team always has one, and nobody changes what they are themselves.
"""

from __future__ import annotations

from django.db import transaction

from lab.lib.refusals import Refusal
from lab.teams.accounts.models import Membership, Role, Team, User
from lab.teams.accounts.permissions import is_role_allowed

LAST_OWNER = "This is the team's only owner."
FIX_LAST_OWNER = "Make someone else an owner first."


def lock_team(team: Team) -> Team:
    """The team's row until the transaction ends: changes of members, and launches, go one after another. Rows that point at it can be added."""
    return Team.objects.select_for_update(no_key=True).get(pk=team.pk)


def membership_in(team: Team, user: User | None) -> Membership | None:
    """As it is now, not as the request found it."""
    if user is None:
        return None
    return Membership.objects.filter(team=team, user=user, active=True, user__is_active=True).select_related("team", "user").first()


def require_manager(team: Team, by: User | None) -> Membership:
    """Raises Refusal unless the person manages members now. Call under ``lock_team``: two admins may deactivate each other at once."""
    manager = membership_in(team, by)
    if manager is None or not is_role_allowed(manager.role, "members.manage"):
        raise Refusal("You can no longer manage this team's members.", "Reload the page.")
    return manager


def may_touch(by: Membership, member: Membership) -> None:
    """Raises Refusal where the person may not change this member at all."""
    if by.pk == member.pk:
        raise Refusal("You cannot change your own membership.", "Another owner or admin can; you can leave the team yourself.")
    if member.role == Role.OWNER and by.role != Role.OWNER:
        raise Refusal("Only an owner can change an owner.", "Ask one of the team's owners.")


def may_give(by: Membership, role: str) -> None:
    """Raises Refusal where the person may not make anybody that."""
    if role not in Role.values:
        raise Refusal(f"There is no role {role[:40]!r}.", f"Choose one of {', '.join(Role.values)}.", field="role")
    if role == Role.OWNER and by.role != Role.OWNER:
        raise Refusal("Only an owner can make owners.", "Choose another role, or ask one of the team's owners.", field="role")


def list_givable_roles(by: Membership) -> list[str]:
    """The roles the person may give, highest first."""
    return [role.value for role in Role if role != Role.OWNER or by.role == Role.OWNER]


def keeps_an_owner(member: Membership) -> None:
    """Raises Refusal when the team would be without an owner if this member were none. Call under ``lock_team``."""
    if member.role != Role.OWNER or not member.active:
        return
    others = Membership.objects.filter(team=member.team_id, role=Role.OWNER, active=True, user__is_active=True).exclude(pk=member.pk)
    if not others.exists():
        raise Refusal(LAST_OWNER, FIX_LAST_OWNER)


def reload_member(member: Membership) -> Membership:
    """The member as they are now, under the team's lock. Raises Refusal when they are gone. Needs a transaction."""
    if not transaction.get_connection().in_atomic_block:
        raise RuntimeError("changes of members need a transaction")
    lock_team(member.team)
    current = Membership.objects.filter(pk=member.pk).select_related("team", "user").first()
    if current is None:
        raise Refusal("This person is no longer in the team.", "Reload the page.")
    return current
