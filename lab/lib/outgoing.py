"""Requests that the lab sends to addresses people typed: to the public internet only, decided by the address that is really connected to.

``post_to_address`` looks the name up once, refuses every address that is not public, and connects to the very address it looked at, so that a name
that changes its answer (DNS rebinding) changes nothing. It follows no redirect, uses no proxy, and neither returns nor keeps what was answered.
LAB_OUTGOING_PORTS says which ports may be called, LAB_OUTGOING_ALLOW which private networks an installation wants reached all the same.
"""

from __future__ import annotations

import ipaddress
import re
import socket
import ssl
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from urllib.parse import quote, urlsplit

from django.conf import settings

from lab.lib.refusals import Refusal

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Lookup = Callable[[str, int], Sequence[str]]

MAX_URL = 1000
MAX_ADDRESSES = 3  # of a name that are tried
MAX_ANSWER = 8192  # bytes read in search of the status line
DEFAULT_PORTS = {"http": 80, "https": 443}
LABEL = re.compile(r"(?!-)[a-z0-9_-]{1,63}(?<!-)", re.IGNORECASE | re.ASCII)
STATUS = re.compile(rb"HTTP/1\.[01] ([1-5][0-9][0-9])(?: [^\r\n]*)?\r?\n")
TOKEN = re.compile(r"[A-Za-z0-9-]+")
PUBLIC_6 = ipaddress.ip_network("2000::/3")
# Forms of IPv6 in which another address is wrapped, and what is set aside: protocol assignments with Teredo, 6to4, documentation, NAT64.
WRAPPED_6 = tuple(
    ipaddress.ip_network(network) for network in ("2001::/23", "2002::/16", "2001:db8::/32", "3fff::/20", "64:ff9b::/96", "64:ff9b:1::/48")
)
SET_ASIDE_4 = tuple(ipaddress.ip_network(network) for network in ("192.0.0.0/24", "192.88.99.0/24"))  # protocol assignments, 6to4 relays
# Machines answer here about themselves, with credentials: never called, whatever an installation allows.
METADATA = tuple(
    ipaddress.ip_network(network) for network in ("169.254.0.0/16", "168.63.129.16/32", "100.100.100.200/32", "fd00:ec2::254/128", "fe80::/10")
)


@dataclass(frozen=True)
class RequestOutcome:
    """``status`` is None when nothing was answered; ``problem`` is empty when the receiver took it (any 2xx)."""

    status: int | None
    problem: str

    @property
    def taken(self) -> bool:
        return not self.problem


@dataclass(frozen=True)
class RequestTarget:
    scheme: str
    host: str  # a name in ASCII, or an address without brackets
    port: int
    path: str  # with the query, quoted

    @property
    def named(self) -> str:
        """As it stands in the Host header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == DEFAULT_PORTS[self.scheme] else f"{host}:{self.port}"


def post_to_address(url: str, body: bytes, headers: Mapping[str, str], timeout: float = 5, *, lookup: Lookup | None = None) -> RequestOutcome:
    """Sends ``body`` and says what became of it, within ``timeout`` seconds from the look-up to the status line. Raises nothing about the net.

    Raises ValueError for a header that cannot be sent.
    """
    deadline = time.monotonic() + timeout
    try:
        target = parse_target(url)
        message = request_of(target, body, headers)
        addresses = resolve_addresses(target, compute_remaining_seconds(deadline), lookup or look_up)
        with connect_to_target(target, addresses, deadline) as connection:
            send_message_bytes(connection, message, deadline)
            return judge_status(status_of(connection, deadline))
    except Refusal as error:
        return RequestOutcome(None, str(error))
    except ssl.SSLCertVerificationError as error:
        return RequestOutcome(None, f"the certificate was not accepted: {error.verify_message}")
    except TimeoutError:
        return RequestOutcome(None, f"no answer within {timeout:g} s")
    except (ssl.SSLError, ConnectionError, OSError) as error:
        return RequestOutcome(None, f"could not be reached: {describe_network_error(error)}")


def parse_target(url: str) -> RequestTarget:
    """What the address names, before any look-up. Raises Refusal."""
    if len(url) > MAX_URL:
        raise Refusal(f"the address is longer than {MAX_URL} characters")
    if not url.isascii() or not url.isprintable() or any(character in url for character in ' \\"<>^`{|}'):
        raise Refusal("the address may contain only printable ASCII characters; percent-encode other characters, and write host names as xn--…")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise Refusal("not a valid URL: its host or port cannot be read") from None
    scheme = parts.scheme.lower()
    if scheme not in DEFAULT_PORTS:
        raise Refusal("the address must begin with https:// or http://")
    if "@" in parts.netloc:
        raise Refusal("the address must not contain a user name or password")
    if "%" in parts.netloc:
        raise Refusal("the host may not be percent-encoded")
    host = (parts.hostname or "").lower()
    literal = literal_of(host, "[" in parts.netloc)
    if literal is not None:
        check_public_address(literal)
    port = DEFAULT_PORTS[scheme] if port is None else port
    if not any(port in range(first, last + 1) for first, last in settings.OUTGOING_PORTS):
        raise Refusal(f"port {port} is not allowed; allowed are 80, 443 and 8000 to 9999, unless the operator sets LAB_OUTGOING_PORTS")
    path = quote(parts.path or "/", safe="/%:@!$&'()*+,;=~-._")
    return RequestTarget(scheme, host, port, f"{path}?{parts.query}" if parts.query else path)


def literal_of(host: str, bracketed: bool) -> Address | None:
    """The address that ``host`` spells; None for a name. Raises Refusal for what is neither, such as 0x7f.1 or 2130706433."""
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        labels = host.split(".")
        last = labels[-1]
        numeric = last.isdigit() or re.fullmatch(r"0x[0-9a-f]*", last)
        if bracketed or len(host) > 253 or numeric or not all(LABEL.fullmatch(label) for label in labels):
            raise Refusal("the host is neither a name nor an address as 93.184.216.34 or [2606:2800::1]") from None
        return None


def check_public_address(address: Address) -> None:
    """Raises Refusal for every address that is not one of the public internet, or of a network this installation allows."""
    plain = ipaddress.ip_address(str(address).split("%")[0])
    inside = getattr(plain, "ipv4_mapped", None) or plain
    never = inside.is_unspecified or inside.is_multicast or inside.is_link_local or any(has_address(network, inside) for network in METADATA)
    if not never and (is_public(plain) or any(has_address(network, plain) for network in settings.OUTGOING_ALLOW)):
        return
    raise Refusal("it leads to an address that is not on the public internet, which is not allowed")


def is_public(address: Address) -> bool:
    if not address.is_global or address.is_multicast or address.is_reserved:
        return False
    if isinstance(address, ipaddress.IPv4Address):
        return not any(address in network for network in SET_ASIDE_4)
    return address in PUBLIC_6 and not any(address in network for network in WRAPPED_6)


def has_address(network: Network, address: Address) -> bool:
    return network.version == address.version and address in network


def look_up(host: str, port: int) -> Sequence[str]:
    entries = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP)
    return [str(entry[4][0]) for entry in entries]


def resolve_addresses(target: RequestTarget, seconds: float, lookup: Lookup) -> list[Address]:
    """All addresses of the host, each checked: one bad one refuses the name.

    The system's look-up has no time limit of its own, so it runs in a thread. Raises Refusal and TimeoutError.
    """
    answer: list[Sequence[str] | Exception] = []

    def ask() -> None:
        try:
            answer.append(lookup(target.host, target.port))
        except (OSError, UnicodeError) as error:
            answer.append(error)

    asking = threading.Thread(target=ask, name="look-up", daemon=True)
    asking.start()
    asking.join(seconds)
    if not answer:
        raise TimeoutError
    if isinstance(answer[0], Exception) or not answer[0]:
        raise Refusal("its name could not be looked up")
    addresses = [ipaddress.ip_address(address) for address in answer[0]]
    for address in addresses:
        check_public_address(address)
    return addresses


def connect_to_target(target: RequestTarget, addresses: Sequence[Address], deadline: float) -> socket.socket:
    """To one of the addresses themselves; over TLS the name is sent and the certificate must be for it."""
    plain = open_first_socket(addresses, target.port, deadline)
    if target.scheme == "http":
        return plain
    try:
        plain.settimeout(compute_remaining_seconds(deadline))
        return make_tls_context().wrap_socket(plain, server_hostname=target.host)
    except BaseException:
        plain.close()
        raise


def open_first_socket(addresses: Sequence[Address], port: int, deadline: float) -> socket.socket:
    """The first that takes a connection. Raises the last one's OSError."""
    trouble: OSError = OSError("no address")
    for address in addresses[:MAX_ADDRESSES]:
        plain = socket.socket(socket.AF_INET if address.version == 4 else socket.AF_INET6, socket.SOCK_STREAM)
        try:
            plain.settimeout(compute_remaining_seconds(deadline))
            plain.connect((str(address), port))
            return plain
        except OSError as error:
            plain.close()
            trouble = error
    raise trouble


@cache
def make_tls_context() -> ssl.SSLContext:
    return ssl.create_default_context()  # once: reading the certificates of the system takes 20 ms


def request_of(target: RequestTarget, body: bytes, headers: Mapping[str, str]) -> bytes:
    own = {"Host": target.named, "User-Agent": "policy-lab", "Connection": "close", "Accept": "*/*", "Content-Length": str(len(body))}
    lines = [f"POST {target.path} HTTP/1.1"]
    for name, value in {**headers, **own}.items():
        if not TOKEN.fullmatch(name) or not value.isascii() or not value.isprintable():
            raise ValueError(f"header {name!r} cannot be sent")
        lines.append(f"{name}: {value}")
    return "\r\n".join([*lines, "", ""]).encode("ascii") + body


def send_message_bytes(connection: socket.socket, message: bytes, deadline: float) -> None:
    left = memoryview(message)
    while left:
        connection.settimeout(compute_remaining_seconds(deadline))
        left = left[connection.send(left) :]


def status_of(connection: socket.socket, deadline: float) -> int:
    """The first status that is not 1xx, of at most ``MAX_ANSWER`` bytes. What follows it is never read. Raises Refusal for no HTTP."""
    got = b""
    while len(got) < MAX_ANSWER:
        connection.settimeout(compute_remaining_seconds(deadline))
        piece = connection.recv(1024)
        got += piece
        while (match := STATUS.match(got)) and match[1].startswith(b"1") and b"\r\n\r\n" in got:
            got = got.partition(b"\r\n\r\n")[2]
        if match and not match[1].startswith(b"1"):
            return int(match[1])
        if not piece:
            break
    raise Refusal("the response is not HTTP")


def judge_status(status: int) -> RequestOutcome:
    if 200 <= status < 300:
        return RequestOutcome(status, "")
    return RequestOutcome(status, f"answered {status}, a redirect, which is not followed" if 300 <= status < 400 else f"answered {status}")


def compute_remaining_seconds(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


def describe_network_error(error: OSError) -> str:
    """Never text of the other side: of TLS only the library's own reason."""
    if isinstance(error, ssl.SSLError):
        return f"TLS failed ({(error.reason or 'closed').lower().replace('_', ' ')})"
    return (error.strerror or "the connection was closed").lower()


def parse_port_ranges(text: str) -> list[tuple[int, int]]:
    """``80,443,8000-9999`` as first and last of each range. Raises ValueError."""
    ranges = []
    for part in text.split(","):
        first, _, last = part.strip().partition("-")
        ranges.append((int(first), int(last or first)))
        if not 0 < ranges[-1][0] <= ranges[-1][1] < 65536:
            raise ValueError(f"{part!r} is not a port or a range of ports")
    return ranges
