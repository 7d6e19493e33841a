"""Whose token it is, the team it belongs to, and who is in that."""

from __future__ import annotations

from datetime import datetime

from django.db.models import QuerySet
from django.http import HttpRequest
from ninja import Field, Schema

from lab.edges.api.base import any_token, caller_of, make_router, require_permission
from lab.teams.accounts.addresses import build_absolute_url, team_path
from lab.teams.accounts.models import Membership, User
from lab.teams.accounts.permissions import TABLE

router = make_router("Account and team")


class Person(Schema):
    id: int
    email: str = Field(examples=["ada@example.org"])
    name: str = Field(description="Empty if not set.")


class Token(Schema):
    """The token of this request; the secret is not stored."""

    name: str
    prefix: str = Field(description="First characters of the token, as shown in the audit log.", examples=["lab_x7Kp2mQa"])
    scopes: list[str] = Field(examples=[["runs.read", "runs.launch"]])
    expires_at: datetime | None
    last_used_at: datetime | None


class TeamOut(Schema):
    id: int
    name: str
    slug: str = Field(description="Part of the URLs of the team's pages.", examples=["reasoning"])
    url: str


class Me(Schema):
    user: Person | None = Field(description="null for a service token.")
    team: TeamOut
    role: str = Field(examples=["researcher"])
    token: Token
    may: list[str] = Field(description="Permissions of this token: its scopes that its role also has.", examples=[["runs.read"]])


class Member(Schema):
    user: Person
    role: str
    since: datetime


@router.get("/me", auth=any_token, response=Me, summary="Token information")
def me(request: HttpRequest) -> object:
    """A good first request: shows that the token works, and its person, team and permissions."""
    caller = caller_of(request)
    user = caller.user
    return {
        "user": serialize_person(user) if user else None,
        "team": {"id": caller.team.pk, "name": caller.team.name, "slug": caller.team.slug, "url": build_absolute_url(team_path(caller.team, "home"))},
        "role": caller.role,
        "token": caller.token,
        "may": [name for name in TABLE if caller.may(name)],
    }


@router.get("/members", auth=require_permission("members.read"), response=list[Member], summary="Team members")
def list_members(request: HttpRequest) -> object:
    """Active members, oldest first."""
    return [{"user": serialize_person(member.user), "role": member.role, "since": member.created_at} for member in select_active_members(request)]


def select_active_members(request: HttpRequest) -> QuerySet[Membership]:
    members = Membership.objects.filter(team=caller_of(request).team, active=True, user__is_active=True)
    return members.select_related("user").order_by("pk")


def serialize_person(user: User) -> dict[str, object]:
    return {"id": user.pk, "email": user.email, "name": user.get_full_name()}
