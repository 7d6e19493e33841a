"""People, teams, memberships and access tokens."""

from __future__ import annotations

from typing import Any

from allauth.account.models import EmailAddress
from allauth.mfa.models import Authenticator
from django.contrib import admin
from django.db import transaction
from django.db.models import Count, Exists, OuterRef, Q, QuerySet
from django.http import HttpRequest
from django.utils import timezone

from lab.edges.operations.base import OperatorAdmin, make_confirmed_action, render_json_block
from lab.edges.operations.site import site
from lab.lib.refusals import Refusal
from lab.teams.accounts.address_proof import mail_reset_link, own_address, remove_ways_in
from lab.teams.accounts.models import ApiToken, Membership, Team, User
from lab.teams.accounts.second_factor import FACTORS
from lab.teams.accounts.sessions import end_sessions
from lab.teams.audit.recording import record_audit_entry, record_of_person
from lab.teams.people import departures

MEMBERS = Count("memberships", filter=Q(memberships__active=True))


@make_confirmed_action(
    "Deactivate these people",
    "They are signed out everywhere and removed from all their teams: their tokens are revoked, queued runs stopped and held items released. "
    "Their work is kept. The last owner of a team is refused: transfer ownership first.",
)
def deactivate_people(request: HttpRequest, user: User) -> str:
    if user.pk == request.user.pk:
        return "You cannot deactivate yourself."
    by: Any = request.user
    try:
        with transaction.atomic():
            for membership in user.memberships.filter(active=True).select_related("team", "user"):
                departures.deactivate_member(membership, by, operator=True)
            User.objects.filter(pk=user.pk).update(is_active=False)
            record_of_person("admin.change", user, is_active=[user.is_active, False])
            end_sessions(user)
    except Refusal as refused:
        return str(refused)
    return ""


@make_confirmed_action(
    "Reactivate these people", "Their accounts work again. They stay out of their former teams until an admin reactivates them there."
)
def reactivate_people(request: HttpRequest, user: User) -> str:
    with transaction.atomic():
        if not User.objects.filter(pk=user.pk, is_active=False).update(is_active=True):
            return "This account is active."
        record_of_person("admin.change", user, is_active=[False, True])
    return ""


@make_confirmed_action("Sign these people out everywhere", "All their sessions end immediately, including open pages. They can sign in again.")
def sign_out_people(request: HttpRequest, user: User) -> str:
    with transaction.atomic():
        ended = end_sessions(user)
        record_of_person("session.revoke", user, sessions=ended)
    return ""


@make_confirmed_action(
    "Reset these accounts",
    "For accounts that were compromised, or whose second factor is lost. Password, second factors, passkeys, recovery codes, "
    "connections to single sign-on, access tokens and sessions are removed immediately. A link to set a new password is e-mailed; without a mail "
    "server it is a file in the folder mail of the lab's data, for you to hand over.",
)
def reset_people(request: HttpRequest, user: User) -> str:
    person: Any = request.user
    if user.pk == person.pk:
        return "You cannot reset your own account here; use your account page."
    if user.is_superuser and not person.is_superuser:
        return "Only a superuser can reset a superuser."
    with transaction.atomic():
        user.set_unusable_password()
        user.save(update_fields=["password"])
        own_address(user).update(verified=False)
        remove_ways_in(user)
        record_of_person("admin.change", user, did="reset the account")
    mail_reset_link(request, user)
    return ""


@admin.register(User, site=site)
class UserAdmin(OperatorAdmin):
    list_display = ("email", "verified", "name", "is_active", "is_staff", "second_factor", "teams", "last_login", "date_joined")
    list_filter = ("is_active", "is_staff")
    search_fields = ("email", "first_name", "last_name")
    ordering = ("email",)
    fields = (
        *("email", "verified", "first_name", "last_name", "is_active", "is_staff", "is_superuser"),
        *("second_factor", "teams", "last_login", "date_joined"),
    )
    editable = ("first_name", "last_name")
    actions = (deactivate_people, reactivate_people, sign_out_people, reset_people)

    def get_queryset(self, request: HttpRequest) -> QuerySet[User]:
        factor = Exists(Authenticator.objects.filter(user=OuterRef("pk"), type__in=FACTORS))
        proved = Exists(EmailAddress.objects.filter(user=OuterRef("pk"), primary=True, verified=True))
        return super().get_queryset(request).annotate(team_count=MEMBERS, factor=factor, proved=proved).defer("password")  # type: ignore[no-any-return]

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> list[str]:
        """Who is an operator is decided by superusers, and by nobody for themselves."""
        names = super().get_readonly_fields(request, obj)
        person: Any = request.user
        rights = person.is_superuser and obj is not None and obj.pk != person.pk
        return [name for name in names if not (rights and name in ("is_staff", "is_superuser"))]

    @admin.display(description="name")
    def name(self, user: User) -> str:
        return user.get_full_name()

    @admin.display(description="address verified", boolean=True)
    def verified(self, user: User) -> bool:
        return bool(getattr(user, "proved", False))

    @admin.display(description="second factor", boolean=True)
    def second_factor(self, user: User) -> bool:
        return bool(getattr(user, "factor", False))

    @admin.display(description="teams", ordering="team_count")
    def teams(self, user: User) -> int:
        return int(getattr(user, "team_count", 0))

    def log_change(self, request: HttpRequest, obj: Any, message: Any) -> None:
        fields = [name for part in message if isinstance(part, dict) for name in part.get("changed", {}).get("fields", [])]
        record_of_person("admin.change", obj, changed=fields)


@admin.register(Team, site=site)
class TeamAdmin(OperatorAdmin):
    list_display = ("name", "slug", "members", "runs_count", "requires_mfa", "join_requests", "created_at")
    search_fields = ("name", "slug")
    ordering = ("name",)
    fields = ("name", "slug", "requires_mfa", "join_requests", "members", "runs_count", "created_at")
    editable = ("name", "requires_mfa", "join_requests")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Team]:
        counted = super().get_queryset(request).annotate(member_count=Count("memberships", filter=Q(memberships__active=True), distinct=True))
        return counted.annotate(run_count=Count("runs", distinct=True))  # type: ignore[no-any-return]

    @admin.display(description="active members")
    def members(self, team: Team) -> int:
        return int(getattr(team, "member_count", 0))

    @admin.display(description="runs")
    def runs_count(self, team: Team) -> int:
        return int(getattr(team, "run_count", 0))


@make_confirmed_action(
    "Deactivate these memberships", "These people lose access to the team: tokens are revoked, queued runs stopped, held items released."
)
def deactivate_members(request: HttpRequest, member: Membership) -> str:
    by: Any = request.user
    try:
        departures.deactivate_member(member, by, operator=True)
    except Refusal as refused:
        return str(refused)
    return ""


@make_confirmed_action("Reactivate these memberships", "These people rejoin the team with their former role. Their tokens stay revoked.")
def reactivate_members(request: HttpRequest, member: Membership) -> str:
    by: Any = request.user
    try:
        departures.reactivate_member(member, by, operator=True)
    except Refusal as refused:
        return str(refused)
    return ""


@admin.register(Membership, site=site)
class MembershipAdmin(OperatorAdmin):
    list_display = ("user", "team", "role", "active", "created_at", "deactivated_at")
    list_filter = ("role", "active", "team")
    list_select_related = ("user", "team")
    search_fields = ("user__email", "team__name")
    ordering = ("team__name", "user__email")
    actions = (deactivate_members, reactivate_members)


@make_confirmed_action("Revoke these tokens", "Requests with them are refused from now on. A revoked token cannot be restored.")
def revoke_tokens(request: HttpRequest, token: ApiToken) -> str:
    by: Any = request.user
    with transaction.atomic():
        if not ApiToken.objects.same_row(token).filter(revoked_at=None).update(revoked_at=timezone.now(), revoked_by=by):
            return "It is already revoked."
        record_audit_entry("token.revoke", token)
    return ""


@admin.register(ApiToken, site=site)
class TokenAdmin(OperatorAdmin):
    list_display = ("name", "prefix", "team", "owner", "created_at", "expires_at", "last_used_at", "last_used_from", "revoked_at")
    list_filter = (("revoked_at", admin.EmptyFieldListFilter), "team")
    list_select_related = ("team", "user")
    search_fields = ("name", "prefix", "user__email")
    ordering = ("-created_at",)
    fields = (  # the digest of the secret is nobody's to see
        *("name", "prefix", "team", "owner", "role", "allowed", "created_by", "created_at", "expires_at"),
        *("last_used_at", "last_used_from", "revoked_at", "revoked_by"),
    )
    actions = (revoke_tokens,)

    @admin.display(description="of")
    def owner(self, token: ApiToken) -> str:
        return token.user.email if token.user else f"service ({token.role})"

    @admin.display(description="scopes")
    def allowed(self, token: ApiToken) -> str:
        return render_json_block(token.scopes)
