"""Pages of a team: who is in it, what the reader may do, one member."""

from __future__ import annotations

from typing import Any

from django.http import HttpResponse
from django.shortcuts import get_object_or_404
from django.template.response import TemplateResponse
from django.utils import timezone
from django.views.decorators.http import require_safe

from lab.accounts.models import Membership, Role
from lab.accounts.permissions import TABLE, Permission
from lab.accounts.roles import may
from lab.people import inviting, joining, leaving
from lab.people.forms import WORDS, InviteForm
from lab.people.listing import members_of, rows
from lab.people.request import MAX_ID, TeamRequest
from lab.people.rules import Refused, givable, may_touch


@require_safe
def team(request: TeamRequest) -> HttpResponse:
    return team_page(request)


def team_page(request: TeamRequest, form: InviteForm | None = None, status: int = 200) -> HttpResponse:
    """``form``: an invitation that was refused, with what is wrong with it."""
    mine, manages = request.membership, may(request, "members.manage")
    context: dict[str, Any] = {"room": "team", "tab": "members", "rows": rows(request.team, mine), "mine": mine, "manages": manages}
    context["people"] = sum(row.status == "active" for row in context["rows"])
    if manages:
        context["form"] = form or InviteForm(None, mine)
        context["invitations"] = list(inviting.open_invitations(request.team))
        context["requests"] = list(joining.waiting(request.team))
        context["roles"] = givable(mine)
        context["now"] = timezone.now()
    return TemplateResponse(request, "people/team.html", context, status=status)


@require_safe
def role(request: TeamRequest) -> HttpResponse:
    """What the reader may do here, and what every other role may: the permission table in words."""
    mine = request.membership.role
    lines: list[tuple[Permission, list[tuple[str, bool]]]] = [(one, [(role.value, role in one.roles) for role in Role]) for one in TABLE.values()]
    context = {"room": "team", "tab": "role", "lines": lines, "roles": [role.value for role in Role], "mine": mine, "words": WORDS[Role(mine)]}
    return TemplateResponse(request, "people/role.html", context)


def member_of(request: TeamRequest, membership_id: int) -> Membership:
    return get_object_or_404(members_of(request.team), pk=min(membership_id, MAX_ID))


@require_safe
def member(request: TeamRequest, membership_id: int) -> HttpResponse:
    return member_page(request, member_of(request, membership_id))


def member_page(request: TeamRequest, found: Membership, problem: str = "", status: int = 200) -> HttpResponse:
    """What the team's admins may do about a member; before somebody is deactivated, what that would stop and what it would not."""
    mine = request.membership
    [row] = [row for row in rows(request.team, mine) if row.member.pk == found.pk]
    held = leaving.holdings(found) if found.active else []
    context = {
        "room": "team",
        "tab": "members",
        "row": row,
        "member": found,
        "untouchable": why_not(mine, found),
        "problem": problem,
        "roles": [(role, WORDS[Role(role)]) for role in givable(mine)],
        "ends": [one.words for one in held if not one.stays],
        "stays": [one.words for one in held if one.stays],
    }
    return TemplateResponse(request, "people/member.html", context, status=status)


def why_not(mine: Membership, found: Membership) -> str:
    """Why the reader cannot change this member; empty when they can."""
    try:
        may_touch(mine, found)
    except Refused as refused:
        return str(refused)
    return ""
