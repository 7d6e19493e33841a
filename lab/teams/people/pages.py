"""Pages of a team: who is in it, what the reader may do, one member."""

from __future__ import annotations

from typing import Any

from django.http import HttpResponse
from django.shortcuts import get_object_or_404
from django.template.response import TemplateResponse
from django.utils import timezone
from django.views.decorators.http import require_safe

from lab.lib.refusals import Refusal
from lab.teams.accounts.models import Membership, Role
from lab.teams.accounts.permissions import TABLE, Permission
from lab.teams.accounts.requests import LabRequest
from lab.teams.accounts.roles import has_team_permission
from lab.teams.people import departures, invitations, join_requests
from lab.teams.people.forms import WORDS, InviteForm
from lab.teams.people.listing import list_member_rows, members_of, proved_people
from lab.teams.people.member_rules import list_givable_roles, may_touch


@require_safe
def show_team(request: LabRequest) -> HttpResponse:
    return team_page(request)


def team_page(request: LabRequest, form: InviteForm | None = None, status: int = 200) -> HttpResponse:
    """``form``: an invitation that was refused, with what is wrong with it."""
    mine, manages = request.membership, has_team_permission(request, "members.manage")
    context: dict[str, Any] = {"room": "team", "tab": "members", "rows": list_member_rows(request.team, mine), "mine": mine, "manages": manages}
    context["people"] = sum(row.status == "active" for row in context["rows"])
    if manages:
        context["form"] = form or InviteForm(None, mine)
        context["invitations"] = list(invitations.open_invitations(request.team))
        context["requests"] = list(join_requests.select_join_requests(request.team))
        context["proved"] = proved_people([join_request.user_id for join_request in context["requests"]])
        context["roles"] = list_givable_roles(mine)
        context["now"] = timezone.now()
    return TemplateResponse(request, "people/team.html", context, status=status)


@require_safe
def show_own_role(request: LabRequest) -> HttpResponse:
    """What the reader may do here, and what every other role may: the permission table in words."""
    mine = request.membership.role
    lines: list[tuple[Permission, list[tuple[str, bool]]]] = [
        (permission, [(role.value, role in permission.roles) for role in Role]) for permission in TABLE.values()
    ]
    context = {"room": "team", "tab": "role", "lines": lines, "roles": [role.value for role in Role], "mine": mine, "words": WORDS[Role(mine)]}
    return TemplateResponse(request, "people/role.html", context)


def member_of(request: LabRequest, membership_id: int) -> Membership:
    return get_object_or_404(members_of(request.team), pk=membership_id)


@require_safe
def show_member(request: LabRequest, membership_id: int) -> HttpResponse:
    return member_page(request, member_of(request, membership_id))


def member_page(request: LabRequest, member: Membership, problem: str = "", status: int = 200) -> HttpResponse:
    """What the team's admins may do about a member; before somebody is deactivated, what that would stop and what it would not."""
    mine = request.membership
    [row] = [row for row in list_member_rows(request.team, mine) if row.member.pk == member.pk]
    held = departures.list_member_holdings(member) if member.active else []
    context = {
        "room": "team",
        "tab": "members",
        "row": row,
        "member": member,
        "untouchable": why_not(mine, member),
        "problem": problem,
        "roles": [(role, WORDS[Role(role)]) for role in list_givable_roles(mine)],
        "ends": [holding.words for holding in held if not holding.stays],
        "stays": [holding.words for holding in held if holding.stays],
    }
    return TemplateResponse(request, "people/member.html", context, status=status)


def why_not(mine: Membership, member: Membership) -> str:
    """Why the reader cannot change this member; empty when they can."""
    try:
        may_touch(mine, member)
    except Refusal as refused:
        return str(refused)
    return ""
