"""Changing what somebody is in a team, and handing a team over."""

from __future__ import annotations

from django.db import transaction

from lab.lib.refusals import Refusal
from lab.teams.accounts.models import Membership, Role, User
from lab.teams.audit.recording import record_audit_entry
from lab.teams.people.member_rules import keeps_an_owner, may_give, may_touch, reload_member, require_manager


def change_role(membership: Membership, role: str, by: User | None, *, operator: bool = False) -> Membership:
    """Sockets and tokens of the person ask for the new role from the next message on. Raises Refusal."""
    with transaction.atomic():
        member = reload_member(membership)
        if not operator:
            actor = require_manager(member.team, by)
            may_touch(actor, member)
            may_give(actor, role)
        elif role not in Role.values:
            raise Refusal(f"There is no role {role[:40]!r}.", field="role")
        if not member.active:
            raise Refusal("This person is deactivated.", "Reactivate them first.")
        before = member.role
        if before == role:
            return member
        keeps_an_owner(member)
        member.role = role
        member.save(update_fields=["role"])
        record_audit_entry("member.role", member, team=member.team, actor=by, label=member.user.email, before=before, after=role)
    return member


def transfer_ownership(mine: Membership, heir: Membership) -> None:
    """``heir`` becomes an owner, and who hands over an admin. Raises Refusal."""
    with transaction.atomic():
        giver = reload_member(mine)
        taker = reload_member(heir)
        if giver.role != Role.OWNER or not giver.active:
            raise Refusal("You no longer own this team.", "Reload the page.")
        if taker.pk == giver.pk or taker.team_id != giver.team_id:
            raise Refusal("Choose another member of the team.", field="member")
        if not taker.active or not taker.user.is_active:
            raise Refusal("This person is deactivated.", "Choose someone else, or reactivate them first.", field="member")
        taker.role, giver.role = Role.OWNER, Role.ADMIN
        taker.save(update_fields=["role"])
        giver.save(update_fields=["role"])
        record_audit_entry("team.transfer", giver.team, actor=giver.user, to=taker.user.email, before=giver.user.email)
