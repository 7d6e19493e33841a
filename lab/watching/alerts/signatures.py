"""The signature of a webhook request: HMAC-SHA256 over ``<timestamp>.<body>``, by each secret that is valid now.

Headers: ``Policy-Lab-Timestamp`` (seconds since 1970), ``Policy-Lab-Signature`` (``v1=<hex>``, after a rotation two of them, separated by
commas), ``Policy-Lab-Delivery`` (the id that is also in the body). docs/alerts.md shows a receiver how to check them.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Sequence
from datetime import timedelta

from django.utils import timezone

from lab.lib.sealed import seal_secret, unseal_secret
from lab.watching.alerts.models import Webhook

PURPOSE = "webhook secret"
OVERLAP = timedelta(days=1)  # a former secret signs for so long beside the new one


def new_secret() -> str:
    return "whsec_" + secrets.token_urlsafe(32)


def seal_webhook_secret(secret: str) -> bytes:
    return seal_secret(PURPOSE, secret)


def secrets_of(hook: Webhook) -> list[str]:
    """The valid secrets, newest first. Raises lab.lib.sealed.UnsealError."""
    secrets = [unseal_secret(PURPOSE, bytes(hook.secret))]
    if hook.former is not None and hook.former_until is not None and hook.former_until > timezone.now():
        secrets.append(unseal_secret(PURPOSE, bytes(hook.former)))
    return secrets


def rotate_signing_secret(hook: Webhook) -> str:
    """A new secret, which is returned and never again shown; the old one goes on signing for a day."""
    fresh = new_secret()
    hook.former, hook.former_until, hook.secret = hook.secret, timezone.now() + OVERLAP, seal_webhook_secret(fresh)
    hook.save(update_fields=["former", "former_until", "secret"])
    return fresh


def sign_webhook_body(keys: Sequence[str], timestamp: int, body: bytes) -> str:
    message = f"{timestamp}.".encode() + body
    return ",".join("v1=" + hmac.new(key.encode(), message, hashlib.sha256).hexdigest() for key in keys)
