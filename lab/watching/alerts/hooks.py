"""Webhooks of the team: made, changed, given a new secret and deleted, by whomever it is asked for."""

from __future__ import annotations

from typing import Any

from lab.lib.outgoing import parse_target
from lab.teams.accounts.models import Team, User
from lab.teams.audit.recording import record_audit_entry
from lab.watching.alerts import addresses, signatures
from lab.watching.alerts.models import Webhook

MOST_WEBHOOKS = 20


def explain_webhook_limit(team: Team) -> str:
    """Why there cannot be one more; empty when there can."""
    count = Webhook.objects.filter(team=team).count()
    return f"The team already has {MOST_WEBHOOKS} webhooks. Delete one that is no longer needed." if count >= MOST_WEBHOOKS else ""


def create_webhook(team: Team, by: User | None, fields: dict[str, Any]) -> tuple[Webhook, str]:
    """With its secret, which is nowhere to be read afterwards. ``fields``: name, url and enabled, examined."""
    secret = signatures.new_secret()
    url = fields["url"]
    kept = {"name": fields["name"], "enabled": fields["enabled"], **addresses.build_address_fields(url)}
    hook = Webhook.objects.create(team=team, created_by=by, secret=signatures.seal_webhook_secret(secret), **kept)
    record_audit_entry("webhook.change", hook, what="made", host=parse_target(url).named)
    return hook, secret


def update_webhook(hook: Webhook, fields: dict[str, Any]) -> None:
    """An empty ``url`` leaves the address as it is."""
    was = hook.enabled
    details: dict[str, Any] = {}
    hook.name, hook.enabled = fields["name"], fields["enabled"]
    if fields["url"]:
        for name, value in addresses.build_address_fields(fields["url"]).items():
            setattr(hook, name, value)
        details["host"] = parse_target(fields["url"]).named
    if hook.enabled and not was:
        hook.failing_since, hook.disabled_why = None, ""
    hook.save(update_fields=["name", "address", "shown", "enabled", "failing_since", "disabled_why"])
    record_audit_entry("webhook.change", hook, what="changed", **details, enabled=hook.enabled)


def rotate_webhook_secret(hook: Webhook) -> str:
    """The new secret; the old one goes on signing for a day."""
    secret = signatures.rotate_signing_secret(hook)
    record_audit_entry("webhook.change", hook, what="new secret")
    return secret


def delete_webhook(hook: Webhook) -> None:
    """With its log."""
    record_audit_entry("webhook.change", hook, what="deleted")
    hook.delete()
