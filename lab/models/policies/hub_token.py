"""The team's key to a model hub: stored sealed, read only inside the task that pushes, and never shown, logged or passed on."""

from __future__ import annotations

import re

from django.db import transaction

from lab.lib.refusals import Refusal
from lab.lib.sealed import seal_secret, unseal_secret
from lab.models.policies.models import HubToken
from lab.models.policies.promotion import require_team_permission
from lab.teams.accounts.models import Team, User
from lab.teams.audit.recording import record_audit_entry

PURPOSE = "hub token"
TOKEN = re.compile(r"[\x21-\x7e]{8,500}")
SHOWN = 4  # characters
LOOKS_LIKE = re.compile(r"\bhf_[A-Za-z0-9]{6,}\b|Bearer\s+\S+", re.IGNORECASE)


def store_hub_token(team: Team, user: User, secret: str) -> HubToken:
    """Replaces what was there. Raises Refusal."""
    require_team_permission(team, user, "policies.promote")
    secret = secret.strip()
    if not TOKEN.fullmatch(secret):
        raise Refusal("Not an access token: tokens have 8 to 500 characters without spaces. Copy it from the hub's settings again.")
    with transaction.atomic():
        fields = {"sealed": seal_secret(PURPOSE, secret), "ending": secret[-SHOWN:] if len(secret) >= 4 * SHOWN else "", "stored_by": user}
        token, created = HubToken.objects.update_or_create(team=team, defaults=fields)
        record_audit_entry("secret.change", token, team=team, actor=user, label="hub token", stored=True, replaced=not created)
    return token


def remove_hub_token(team: Team, user: User) -> None:
    """Raises Refusal."""
    require_team_permission(team, user, "policies.promote")
    with transaction.atomic():
        token = HubToken.objects.filter(team=team).first()
        if token is None:
            raise Refusal("No token is stored.")
        record_audit_entry("secret.change", token, team=team, actor=user, label="hub token", stored=False)
        token.delete()


def secret_of(team: Team) -> str:
    """Raises Refusal when there is none, Unreadable when it was sealed under another key."""
    token = HubToken.objects.filter(team=team).first()
    if token is None:
        raise Refusal("The team's hub token was removed; store one and push again.")
    return unseal_secret(PURPOSE, bytes(token.sealed))


def redact_secret(text: str, secret: str) -> str:
    """``text`` without the secret, or anything that looks like one."""
    if secret:
        text = text.replace(secret, "…")
    return LOOKS_LIKE.sub("…", text)
