"""What the lab sends to addresses people typed reaches the public internet or nothing, tried with real sockets."""

from __future__ import annotations

import ipaddress
import re
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from django.test import Client

from lab.data.datasets.models import Dataset
from lab.lib import outgoing
from lab.lib.outgoing import check_public_address, parse_port_ranges, parse_target, post_to_address
from lab.lib.refusals import Refusal
from lab.teams.accounts.models import Team

LOOPBACK = [ipaddress.ip_network("127.0.0.1/32")]
TAKEN = b"HTTP/1.1 204 No Content\r\n\r\n"


class Server:
    """Answers each connection with the next of ``answers`` (the last one again and again) and keeps what it was sent."""

    def __init__(self, answers: list[bytes], host: str = "127.0.0.1", drip: float = 0, context: ssl.SSLContext | None = None) -> None:
        self.answers, self.drip, self.context = answers, drip, context
        self.got: list[bytes] = []
        self.listener = socket.create_server((host, 0))
        self.port = self.listener.getsockname()[1]
        self.thread = threading.Thread(target=self.serve, daemon=True)
        self.thread.start()

    def close(self) -> None:
        """Returns when nothing is answered any more: a thread about to accept would do so on the next listener, which gets the same descriptor."""
        with suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)  # wakes the thread up
        self.thread.join(10)
        self.listener.close()

    def serve(self) -> None:
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            with connection, suppress(OSError):
                self.answer(self.context.wrap_socket(connection, server_side=True) if self.context else connection)

    def answer(self, connection: socket.socket) -> None:
        message = connection.recv(65536)
        head, _, body = message.partition(b"\r\n\r\n")
        length = next(int(line[15:]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:"))
        while len(body) < length:
            body += connection.recv(65536)
        self.got.append(head + b"\r\n\r\n" + body)
        reply = self.answers[min(len(self.got), len(self.answers)) - 1]
        for place in range(0, len(reply), 1 if self.drip else len(reply)):
            connection.sendall(reply[place : place + (1 if self.drip else len(reply))])
            time.sleep(self.drip)
        connection.close()


@pytest.fixture
def serve(settings: Any) -> Iterator[Callable[..., Server]]:
    """Starts servers on loopback, which this installation allows for the length of the test."""
    settings.OUTGOING_ALLOW, settings.OUTGOING_PORTS = LOOPBACK, [(1, 65535)]
    servers: list[Server] = []

    def begin(*answers: bytes, **more: Any) -> Server:
        servers.append(Server(list(answers) or [TAKEN], **more))
        return servers[-1]

    yield begin
    for server in servers:
        server.close()


def test_a_body_arrives_as_it_was_with_its_headers(serve: Callable[..., Server]) -> None:
    server = serve()
    headers = {"Content-Type": "application/json", "X-Mark": "m"}
    assert post_to_address(f"http://127.0.0.1:{server.port}/hook/%C3%A4?x=1", b'{"a": 1}', headers) == outgoing.RequestOutcome(204, "")
    head, _, body = server.got[0].partition(b"\r\n\r\n")
    assert body == b'{"a": 1}'
    assert head.startswith(b"POST /hook/%C3%A4?x=1 HTTP/1.1\r\n")
    assert b"X-Mark: m" in head
    assert f"Host: 127.0.0.1:{server.port}".encode() in head


WORDS = """
http://127.0.0.1/ http://127.1/ http://2130706433/ http://0x7f000001/ http://0177.0.0.1/ http://0x7f.0.0.1/ http://127.0.0.1./ http://0/ http://0.0.0.0/
http://10.0.0.1/ http://172.16.0.1/ http://192.168.1.1/ http://100.64.0.1/ http://100.100.100.200/ http://169.254.169.254/latest/meta-data/
http://168.63.129.16/ http://192.0.0.192/ http://192.0.2.1/ http://198.18.0.1/ http://224.0.0.1/ http://240.0.0.1/ http://255.255.255.255/
http://192.88.99.1/ http://[::1]/ http://[::]/ http://[::ffff:127.0.0.1]/ http://[::ffff:7f00:1]/ http://[::127.0.0.1]/ http://[64:ff9b::7f00:1]/
http://[64:ff9b:1::1]/ http://[2002:7f00:1::1]/ http://[2001:0:7f00:1::]/ http://[2001:db8::1]/ http://[fe80::1]/ http://[fe80::1%25eth0]/
http://[fd00:ec2::254]/ http://[fc00::1]/ http://[ff02::1]/ http://[fec0::1]/ http://[100::1]/ http://[::ffff:0:127.0.0.1]/
http://user:pass@example.org/ http://example.org@127.0.0.1/ http://example.org:22/ http://example.org:6379/ http://example.org:99999/ http://example.org:x/
ftp://example.org/ file:///etc/passwd gopher://example.org/ javascript:alert(1) //example.org/ example.org /hook https:///x https:// http://-a.org/
http://a..org/ http://example.org./ http://%31%32%37.0.0.1/ http://127。0。0。1/ http://①②⑦.0.0.1/ http://exämple.org/ http://example.org\\@127.0.0.1/
http://[127.0.0.1]/ http://[::1/ http://exa<b>mple.org/ http://localhost:80\u0000.example.org/
"""
REFUSED = WORDS.split()


@pytest.mark.parametrize("url", [*REFUSED, "http://example.org/\r\nX: y", "http://exa mple.org/", "", "http://" + "a." * 200 + "org/", "h" * 2000])
def test_mlflow_cve_2026_2393_an_address_that_is_not_public_is_refused_before_anything_is_asked(url: str) -> None:
    asked: list[str] = []
    outcome = post_to_address(url, b"", {}, lookup=lambda host, port: asked.append(host) or ["127.0.0.1"])  # type: ignore[func-returns-value]
    assert outcome.status is None
    assert outcome.problem
    assert all(not host or not host[0].isdigit() for host in asked)


@pytest.mark.parametrize("address", ["93.184.216.34", "1.1.1.1", "2606:4700:4700::1111", "2a00:1450::1"])
def test_public_addresses_are_called(address: str) -> None:
    check_public_address(ipaddress.ip_address(address))


@pytest.mark.parametrize(
    "url", ["https://hooks.example.org/x", "https://xn--exmple-cua.org/", "http://a_b.example.org:8065/hook?x=1&y=%20", "https://[2606:4700::1]/"]
)
def test_ordinary_addresses_are_understood(url: str) -> None:
    assert parse_target(url).path.startswith("/")


@pytest.mark.parametrize("answer", ["127.0.0.1", "10.1.2.3", "::1", "::ffff:10.0.0.1", "169.254.169.254", "fd12::1"])
def test_label_studio_cve_2023_47116_a_name_that_resolves_inward_is_refused(answer: str) -> None:
    assert "not on the public internet" in post_to_address("https://hooks.example.org/", b"", {}, lookup=lambda host, port: [answer]).problem
    assert (
        "not on the public internet"
        in post_to_address("https://hooks.example.org/", b"", {}, lookup=lambda host, port: ["93.184.216.34", answer]).problem
    )


def test_mlflow_cve_2026_64849_a_name_is_looked_up_once_and_that_address_is_connected(serve: Callable[..., Server]) -> None:
    """DNS rebinding: the second answer leads elsewhere, and nobody asks for it."""
    first, second = serve(), serve(host="127.0.0.2")
    answers = iter(["127.0.0.1", "127.0.0.2"])
    outcome = post_to_address(f"http://rebind.example.org:{first.port}/", b"", {}, lookup=lambda host, port: [next(answers)])
    assert outcome.taken
    assert len(first.got) == 1
    assert next(answers) == "127.0.0.2"
    assert (
        "not on the public internet"
        in post_to_address(f"http://rebind.example.org:{second.port}/", b"", {}, lookup=lambda host, port: ["127.0.0.2"]).problem
    )
    assert second.got == []


def test_metadata_addresses_are_refused_whatever_is_allowed(settings: Any) -> None:
    settings.OUTGOING_ALLOW = [ipaddress.ip_network("0.0.0.0/0"), ipaddress.ip_network("::/0")]
    for address in (
        "169.254.169.254",
        "168.63.129.16",
        "100.100.100.200",
        "fd00:ec2::254",
        "fe80::1",
        "::ffff:169.254.169.254",
        "224.0.0.1",
        "0.0.0.0",
    ):
        with pytest.raises(Refusal):
            check_public_address(ipaddress.ip_address(address))
    check_public_address(ipaddress.ip_address("10.0.0.1"))


def test_mlflow_cve_2026_64849_a_redirect_is_not_followed(serve: Callable[..., Server]) -> None:
    target = serve()
    server = serve(f"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:{target.port}/\r\n\r\n".encode())
    outcome = post_to_address(f"http://127.0.0.1:{server.port}/", b"", {})
    assert outcome.status == 302
    assert "not followed" in outcome.problem
    assert target.got == []


def test_nothing_of_the_answer_is_told(serve: Callable[..., Server]) -> None:
    server = serve(b"HTTP/1.1 500 secret-reason\r\nX: secret-header\r\n\r\nsecret-body")
    outcome = post_to_address(f"http://127.0.0.1:{server.port}/", b"", {})
    assert outcome == outgoing.RequestOutcome(500, "answered 500")


@pytest.mark.parametrize("answer", [b"secret " * 5000, b"SSH-2.0-secret\r\n", b"", b"HTTP/1.1 999 secret\r\n\r\n", b"HTTP/1.1 20"])
def test_what_is_not_http_is_said_to_be_so(answer: bytes, serve: Callable[..., Server]) -> None:
    server = serve(answer or b"\r\n")
    outcome = post_to_address(f"http://127.0.0.1:{server.port}/", b"", {})
    assert outcome == outgoing.RequestOutcome(None, "the response is not HTTP")


def test_informational_answers_are_passed_over(serve: Callable[..., Server]) -> None:
    server = serve(b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 201 Created\r\n\r\n")
    assert post_to_address(f"http://127.0.0.1:{server.port}/", b"", {}).status == 201


def test_a_slow_drip_and_a_slow_look_up_end_at_the_time_limit(serve: Callable[..., Server]) -> None:
    server = serve(b"HTTP/1.1 200 " + b"x" * 500, drip=0.05)
    begun = time.monotonic()
    assert "no answer within 0.4 s" in post_to_address(f"http://127.0.0.1:{server.port}/", b"", {}, timeout=0.4).problem
    waiting = threading.Event()
    assert "no answer" in post_to_address("http://slow.example.org/", b"", {}, timeout=0.2, lookup=lambda host, port: [str(waiting.wait(5))]).problem
    waiting.set()
    assert time.monotonic() - begun < 3


@pytest.mark.usefixtures("serve")
def test_a_closed_port_is_said_to_be_so() -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    assert "refused" in post_to_address(f"http://127.0.0.1:{port}/", b"", {}).problem


def test_no_proxy_of_the_environment_is_used(serve: Callable[..., Server], monkeypatch: pytest.MonkeyPatch) -> None:
    proxy, server = serve(), serve()
    for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
    assert post_to_address(f"http://127.0.0.1:{server.port}/", b"", {}).taken
    assert proxy.got == []


@pytest.mark.parametrize("header", [{"X": "a\r\nY: b"}, {"X: y": "a"}, {"X": "ä"}, {"": "a"}])
def test_a_header_cannot_begin_another(header: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="cannot be sent"):
        outgoing.request_of(parse_target("https://example.org/"), b"", header)


def test_tls_wants_a_certificate_for_the_name(serve: Callable[..., Server], certificate: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    server = serve(context=context)

    def to(host: str) -> outgoing.RequestOutcome:
        return post_to_address(f"https://{host}:{server.port}/", b"x", {}, lookup=lambda name, port: ["127.0.0.1"])

    outgoing.make_tls_context.cache_clear()
    assert "certificate was not accepted" in to("hooks.example.org").problem  # signed by nobody we know
    trusting = ssl.create_default_context(cafile=str(certificate))
    monkeypatch.setattr(outgoing, "make_tls_context", lambda: trusting)
    assert to("hooks.example.org").taken
    assert "certificate was not accepted" in to("other.example.org").problem


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """Of hooks.example.org, with its key, signed by itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    name, now = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "hooks.example.org")]), datetime.now(UTC)
    made = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key()).serial_number(1)
    made = made.not_valid_before(now - timedelta(days=1)).not_valid_after(now + timedelta(days=1))
    made = made.add_extension(x509.SubjectAlternativeName([x509.DNSName("hooks.example.org")]), critical=False)
    made = made.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    pem = made.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    private = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    path = tmp_path / "certificate.pem"
    path.write_bytes(private + pem)
    return path


def test_ports_are_read_or_refused() -> None:
    assert parse_port_ranges("80, 443,8000-9999") == [(80, 80), (443, 443), (8000, 9999)]
    for wrong in ("", "0", "x", "9-8", "1-70000"):
        with pytest.raises(ValueError, match=r"port|invalid literal"):
            parse_port_ranges(wrong)


def test_label_studio_cve_2022_36551_nothing_is_imported_from_an_address(as_owner: Client, team: Team) -> None:
    """The import takes a file's bytes; an address is only a name to it, and no code that serves requests opens one."""
    answer = as_owner.post("/datasets/import/", {"name": "x", "url": "http://169.254.169.254/", "file": "file:///etc/passwd"})
    assert answer.status_code == 422
    assert not Dataset.objects.of(team).exists()
    openers = re.compile(r"\burlopen\(|\burlretrieve\(|\brequests\.(get|post|put|request)\(|\bhttpx?\.(get|post|Client)\(")
    found = {path.name for path in (Path(__file__).resolve().parents[2] / "lab").rglob("*.py") if openers.search(path.read_text())}
    # A container asks its own web process whether it lives; set-up asks the npm registry. Both addresses are the operator's.
    assert found == {"health_watch.py", "npm_packages.py"}
