"""Access tokens: ``lab_`` + 8 characters that pages and logs show + ``_`` + 40 secret ones. Only the SHA-256 of the whole is stored."""

from __future__ import annotations

import hashlib
import secrets
import string
from collections.abc import Sequence
from datetime import datetime, timedelta

from django.db.models import Q
from django.utils import timezone
from django.utils.crypto import constant_time_compare

from lab.lib.refusals import Refusal
from lab.teams.accounts.models import ApiToken, Membership, Role, Team, User
from lab.teams.accounts.permissions import TABLE, is_role_allowed
from lab.teams.accounts.second_factor import has_second_factor
from lab.teams.accounts.sessions import remember_seen
from lab.teams.audit.recording import ActContext, get_circumstances, record_audit_entry

MARK = "lab"  # what a secret scanner can look for
SHOWN, SECRET = 8, 40  # characters; 40 of 62 letters are 238 bits
ALPHABET = string.ascii_letters + string.digits
NAME_LENGTH = 80
WRITTEN = timedelta(minutes=1)  # how exactly the last use is known
SERVICE_ROLES = (Role.VIEWER, Role.ANNOTATOR, Role.RESEARCHER, Role.ADMIN)  # nothing that runs by itself owns a team


def create_access_token(
    team: Team, user: User | None, name: str, scopes: Sequence[str], expires_at: datetime | None, role: str = "", by: User | None = None
) -> tuple[ApiToken, str]:
    """A token and its secret, which is nowhere to be read afterwards. ``user`` None: a service token that acts with ``role``.

    Raises ValueError for a scope that is not in the permission table or that the role does not have.
    """
    if user is None and role not in SERVICE_ROLES:
        raise ValueError(f"a service token acts as one of {', '.join(SERVICE_ROLES)}")
    acting = role if user is None else Membership.objects.get(team=team, user=user, active=True, user__is_active=True).role
    for scope in scopes:
        if scope not in TABLE or not is_role_allowed(acting, scope):
            raise ValueError(f"the role {acting} has no scope {scope}")
    prefix, secret = new_secret()
    token = ApiToken.objects.create(
        team=team,
        user=user,
        name=name,
        prefix=prefix,
        digest=hash_secret(secret),
        scopes=sorted(set(scopes)),
        role=role if user is None else "",
        created_by=by or user,
        expires_at=expires_at,
    )
    expiry = expires_at.isoformat() if expires_at else "never"
    record_audit_entry("token.create", token, actor=by or user, scopes=token.scopes, role=token.role, service=user is None, expires=expiry)
    return token, secret


def new_secret() -> tuple[str, str]:
    """The shown beginning, and the whole."""
    drawn = "".join(secrets.choice(ALPHABET) for _ in range(SHOWN + SECRET))
    prefix = f"{MARK}_{drawn[:SHOWN]}"
    return prefix, f"{prefix}_{drawn[SHOWN:]}"


def hash_secret(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def revoke_access_token(token: ApiToken, by: User | None) -> bool:
    """Whether it was revoked now; the next request with it is refused."""
    changed = ApiToken.objects.same_row(token).filter(revoked_at=None).update(revoked_at=timezone.now(), revoked_by=by) == 1
    if changed:
        record_audit_entry("token.revoke", token, actor=by)
    return changed


def find_usable_token(secret: str) -> ApiToken | None:
    """The token, if it lets somebody in now."""
    try:
        return look_up(secret)[0]
    except Refusal:
        return None


def look_up(secret: str) -> tuple[ApiToken, str]:
    """The token and the role it acts with. Raises Refusal."""
    token = ApiToken.across_teams.select_related("team", "user").filter(prefix=secret[: len(MARK) + 1 + SHOWN]).first() if is_one(secret) else None
    if token is None or not constant_time_compare(token.digest, hash_secret(secret)):
        raise Refusal("Unknown access token; check that it was copied completely.", status=401)
    if token.revoked_at is not None:
        raise Refusal("This access token was revoked; create a new one.", status=401)
    if token.expires_at is not None and token.expires_at <= timezone.now():
        raise Refusal("This access token has expired; create a new one.", status=401)
    return token, role_of(token)


def is_one(secret: str) -> bool:
    return len(secret) == len(MARK) + SHOWN + SECRET + 2 and secret.isascii() and secret.replace("_", "").isalnum()


def role_of(token: ApiToken) -> str:
    """Raises Refusal when whom it stands for may not act any more."""
    if token.user is None:
        return token.role
    member = Membership.objects.filter(team=token.team, user=token.user, active=True, user__is_active=True).first()
    if member is None:
        raise Refusal("The owner of this access token is not an active member of its team.", status=401)
    if token.team.requires_mfa and not has_second_factor(token.user):
        raise Refusal("The team of this access token requires a second factor; set one up in the browser first.", status=401)
    return str(member.role)


def record_token_use(token: ApiToken) -> None:
    """Remembers when and from where the token was used last, and once an hour tells the audit log."""
    now = timezone.now()
    if token.last_used_at is not None and token.last_used_at >= now - WRITTEN:
        return
    circumstances = get_circumstances()
    address = circumstances.request.META.get("REMOTE_ADDR") or None if circumstances.request else None
    stale = Q(last_used_at=None) | Q(last_used_at__lt=now - WRITTEN)
    if ApiToken.objects.same_row(token).filter(stale).update(last_used_at=now, last_used_from=address) != 1:
        return
    if token.user_id is not None:
        remember_seen(token.user_id)
    before = token.last_used_at
    if before is None or truncate_to_hour(before) != truncate_to_hour(now):
        record_audit_entry("token.use", token)


def truncate_to_hour(when: datetime) -> datetime:
    return when.replace(minute=0, second=0, microsecond=0)


def act_as(token: ApiToken) -> ActContext:
    """From here on the audit log says that this token acts."""
    circumstances = get_circumstances()
    circumstances.token = token
    return circumstances
