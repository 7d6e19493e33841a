"""A way to a lab that can be shut, as while the lab is restarted, that answers as a proxy does whose lab is away, and that loses answers."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

AWAY = b"HTTP/1.1 502 Bad Gateway\r\nContent-Type: text/html\r\nContent-Length: 3\r\nConnection: close\r\n\r\n<p>"


class Doorway:
    """``requests`` counts what was let through. ``away``: so many requests get a 502. ``lost``: so many times the lab's answer never arrives, but for
    its first ``cut`` bytes.
    """

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self.lab = (str(parts.hostname), int(parts.port or 80))
        self.away = self.lost = self.cut = self.requests = 0
        self.listener: socket.socket | None = None
        self.port = 0

    def __enter__(self) -> Doorway:
        self.open()
        return self

    def __exit__(self, *error: Any) -> None:
        self.shut()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def open(self) -> None:
        """At the port it had before."""
        self.listener = socket.create_server(("127.0.0.1", self.port), reuse_port=False)
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.let_through, args=(self.listener,), daemon=True).start()

    def shut(self, seconds: float = 0.0) -> None:
        """Connections are refused; with ``seconds``, until then."""
        if self.listener is not None:
            with suppress(OSError):
                self.listener.shutdown(socket.SHUT_RDWR)  # wakes accept
            self.listener.close()
            self.listener = None
        if seconds:
            threading.Timer(seconds, self.open).start()

    def let_through(self, listener: socket.socket) -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=self.carry, args=(connection,), daemon=True).start()

    def carry(self, connection: socket.socket) -> None:
        """One request of a client that asks for the connection to be closed, as urllib does."""
        with connection, suppress(OSError):
            connection.settimeout(30)
            request = read_request(connection)
            if self.away:
                self.away -= 1
                connection.sendall(AWAY)
                return
            self.requests += 1
            with socket.create_connection(self.lab, timeout=30) as lab:
                lab.sendall(request)
                answer = b"".join(iter(lambda: lab.recv(65536), b""))
            if self.lost:
                self.lost -= 1
                answer = answer[: self.cut]
            connection.sendall(answer)


def read_request(connection: socket.socket) -> bytes:
    data = b""
    while b"\r\n\r\n" not in data:
        data += connection.recv(65536)
    head, _, body = data.partition(b"\r\n\r\n")
    length = next((int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")), 0)
    while len(body) < length:
        body += connection.recv(65536)
    return head + b"\r\n\r\n" + body
