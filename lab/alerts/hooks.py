"""Webhooks of the team: made, changed, given a new secret and deleted, by whomever it is asked for."""

from __future__ import annotations

from typing import Any

from lab.accounts.models import Team, User
from lab.alerts import signing
from lab.alerts.models import Webhook
from lab.audit.recording import record
from lab.lib.outgoing import examine

MOST_WEBHOOKS = 20


def full(team: Team) -> str:
    """Why there cannot be one more; empty when there can."""
    count = Webhook.objects.filter(team=team).count()
    return f"The team has {MOST_WEBHOOKS} webhooks already. Delete one that is no longer needed." if count >= MOST_WEBHOOKS else ""


def make(team: Team, by: User | None, fields: dict[str, Any]) -> tuple[Webhook, str]:
    """With its secret, which is nowhere to be read afterwards. ``fields``: name, url and enabled, examined."""
    secret = signing.new_secret()
    hook = Webhook.objects.create(team=team, created_by=by, secret=signing.keep(secret), **fields)
    record("webhook.change", hook, what="made", host=examine(hook.url).named)
    return hook, secret


def change(hook: Webhook, fields: dict[str, Any]) -> None:
    was = hook.enabled
    hook.name, hook.url, hook.enabled = fields["name"], fields["url"], fields["enabled"]
    if hook.enabled and not was:
        hook.failing_since, hook.disabled_why = None, ""
    hook.save(update_fields=["name", "url", "enabled", "failing_since", "disabled_why"])
    record("webhook.change", hook, what="changed", host=examine(hook.url).named, enabled=hook.enabled)


def rotate(hook: Webhook) -> str:
    """The new secret; the old one goes on signing for a day."""
    secret = signing.rotate(hook)
    record("webhook.change", hook, what="new secret")
    return secret


def delete(hook: Webhook) -> None:
    """With its log."""
    record("webhook.change", hook, what="deleted")
    hook.delete()
