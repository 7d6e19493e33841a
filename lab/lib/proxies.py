"""Who is asking, behind a proxy: the address and the scheme that a trusted proxy names, and nobody else's word for either.

LAB_PROXY lists the networks of the installation's own proxies. Headers of forwarding from any other peer are dropped before the application
sees them, so that no client chooses the address in the audit log or the one its attempts to sign in are counted by.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from typing import Any

Network = IPv4Network | IPv6Network
Scope = MutableMapping[str, Any]
App = Callable[[Scope, Callable[[], Awaitable[Any]], Callable[[Any], Awaitable[None]]], Awaitable[None]]

FORWARDED = (b"x-forwarded-for", b"x-forwarded-proto", b"x-forwarded-host", b"x-forwarded-port", b"x-forwarded-prefix", b"forwarded", b"x-real-ip")
SECURE = {"http": "https", "websocket": "wss"}
PLAIN = {"http": "http", "websocket": "ws"}
MOST_HOPS = 20


def parse_proxy_networks(written: Iterable[str]) -> list[Network]:
    """Of LAB_PROXY: single addresses or networks. Raises ValueError naming what is neither."""
    try:
        return [ip_network(network.strip()) for network in written if network.strip()]
    except ValueError as error:
        raise ValueError(f"LAB_PROXY must be addresses or networks such as 10.0.0.0/8: {error}") from None


class TrustedProxies:
    def __init__(self, app: App, trusted: list[Network]) -> None:
        self.app, self.trusted = app, trusted

    async def __call__(self, scope: Scope, receive: Any, send: Any) -> None:
        if scope["type"] in SECURE:
            self.see_through(scope)
        await self.app(scope, receive, send)

    def see_through(self, scope: Scope) -> None:
        headers = scope["headers"]
        peer = (scope.get("client") or ("",))[0]
        if self.trusts(peer):
            words = [word for name, value in headers if name == b"x-forwarded-for" for word in value.decode("latin-1").split(",")]
            scope["client"] = (self.asker(peer, words), 0)
            schemes = [value.decode("latin-1").split(",")[-1].strip().lower() for name, value in headers if name == b"x-forwarded-proto"]
            if schemes:
                scope["scheme"] = (SECURE if schemes[-1] in ("https", "wss") else PLAIN)[scope["type"]]
        scope["headers"] = [(name, value) for name, value in headers if name not in FORWARDED]

    def asker(self, peer: str, words: list[str]) -> str:
        """The last address on the way that is not one of our proxies; what stands before it is the client's own word."""
        address = peer
        for word in reversed(words[-MOST_HOPS:]):
            try:
                address = str(ip_address(word.strip().removeprefix("[").split("]")[0]))
            except ValueError:
                break
            if not self.trusts(address):
                break
        return address

    def trusts(self, peer: str) -> bool:
        try:
            address = ip_address(peer)
        except ValueError:  # a unix socket has no address
            return False
        return any(address in network for network in self.trusted)
