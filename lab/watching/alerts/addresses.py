"""A webhook's address: sealed like its secret, because who knows it can post there. Pages show its host and the end of a long path."""

from __future__ import annotations

from urllib.parse import urlsplit

from lab.lib.sealed import seal_secret, unseal_secret
from lab.watching.alerts.models import Webhook

PURPOSE = "webhook address"
LONG = 24  # characters of path and query; of a shorter one the end would be too much of it
END = 4


def build_address_fields(url: str) -> dict[str, bytes | str]:
    """What a webhook keeps of an address that ``lab.lib.outgoing.parse_target`` has taken: sealed, and as pages show it."""
    return {"address": seal_secret(PURPOSE, url), "shown": shorten_webhook_url(url)}


def address_of(hook: Webhook) -> str:
    """The whole address, to post to. Raises lab.lib.sealed.UnsealError."""
    return unseal_secret(PURPOSE, bytes(hook.address))


def shorten_webhook_url(url: str) -> str:
    """``https://hooks.example.org/…dK3f``: scheme, host and port, and the last characters of a long path, by which people tell two apart."""
    parts = urlsplit(url)
    rest = url[len(f"{parts.scheme}://{parts.netloc}") :]
    host = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
    if rest in ("", "/"):
        return host + rest
    return f"{host}/…{rest[-END:] if len(rest) >= LONG else ''}"
