"""The soak's proxy: what passes through is whole, and a latency is paid once for an answer however many pieces it comes in."""

import socket
import threading
import time
from collections.abc import Iterator

import pytest

from bench.tcp_proxy import FaultProxy

PIECES, PIECE = 6, b"0123456789abcdef" * 512  # 8 KiB, as PostgreSQL sends them
DELAY = 1.0


@pytest.fixture(scope="module")
def proxy() -> Iterator[FaultProxy]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=answer_all, args=(server,), daemon=True).start()
        yield FaultProxy(server.getsockname()[1])


def answer_all(server: socket.socket) -> None:
    while True:
        try:
            client, _ = server.accept()
        except OSError:  # closed at the end
            return
        threading.Thread(target=answer_in_pieces, args=(client,), daemon=True).start()


def answer_in_pieces(client: socket.socket) -> None:
    while client.recv(1):
        for _ in range(PIECES):
            client.sendall(PIECE)
            time.sleep(0.01)


def ask(client: socket.socket) -> tuple[bytes, float]:
    began, answer = time.monotonic(), b""
    client.sendall(b"?")
    while len(answer) < PIECES * len(PIECE):
        answer += client.recv(65536)
    return answer, time.monotonic() - began


def test_an_answer_in_pieces_waits_for_the_delay_once_and_is_whole(proxy: FaultProxy) -> None:
    with socket.create_connection(("127.0.0.1", proxy.port)) as client:
        assert ask(client)[0] == PIECES * PIECE
        proxy.delay = DELAY
        answer, seconds = ask(client)
        proxy.heal()
        assert answer == PIECES * PIECE
        assert DELAY <= seconds < 2 * DELAY
        assert ask(client)[1] < DELAY


def test_a_cut_ends_what_is_open_and_refuses_what_is_new(proxy: FaultProxy) -> None:
    with socket.create_connection(("127.0.0.1", proxy.port)) as client:
        assert ask(client)[0]
        proxy.cut()
        assert end_of(client)
        with socket.create_connection(("127.0.0.1", proxy.port)) as late:
            assert end_of(late)
        proxy.heal()
    with socket.create_connection(("127.0.0.1", proxy.port)) as client:
        assert ask(client)[0] == PIECES * PIECE


def end_of(client: socket.socket) -> bool:
    client.settimeout(5)
    try:
        return client.recv(1) == b""
    except ConnectionError:
        return True
