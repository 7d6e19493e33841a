"""Requests that outlast a busy lab (429) and one that is restarted: repeated with growing pauses, for a bounded time, and only where repeating
does no harm.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping
from http.client import HTTPException
from typing import Any, TypeVar
from urllib.parse import urlencode

import msgspec

from trainers.outside.client import LabClient, LabError

log = logging.getLogger(__name__)
Answer = TypeVar("Answer")

API = "/api/v1"
PATIENCE = 120.0  # seconds for which one request is repeated
PAUSES = (0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
PASSING = frozenset({0, 408, 425, 429, 502, 503, 504})  # 0: no answer
UNTOUCHED = frozenset({425, 429})  # answers that say that nothing was done
Query = Mapping[str, Any]


class PatientClient:
    """``patience``: seconds for which one request is repeated, 0 for no repetition. Raises LabError without an address or a token."""

    def __init__(self, url: str | None = None, token: str | None = None, patience: float = PATIENCE) -> None:
        self.client = LabClient(url, token)
        self.patience = patience

    def fetch(self, path: str, kind: type[Answer], query: Query | None = None) -> Answer:
        """The answer to a GET, as ``kind``. Raises LabError, also where the answer is not of this kind."""
        return self.decode_answer(self.request_bytes("GET", path, query), kind)

    def submit(
        self, method: str, path: str, kind: type[Answer], body: Any = None, query: Query | None = None, *, key: str = "", repeatable: bool = False
    ) -> Answer:
        """Sends ``body`` as JSON. With a ``key`` the lab acts once however often the request arrives; ``repeatable`` says the same of the operation
        itself. Raises LabError.
        """
        headers = {"Content-Type": "application/json"} | ({"Idempotency-Key": key} if key else {})
        text = self.request_bytes(method, path, query, msgspec.json.encode({} if body is None else body), headers, repeatable or bool(key))
        return self.decode_answer(text or b"null", kind)

    def request_bytes(
        self,
        method: str,
        path: str,
        query: Query | None = None,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        repeatable: bool = True,
    ) -> bytes:
        waiting = Waiting(self.patience)
        while True:
            try:
                return self.client.request_bytes(method, build_address(path, query), body, headers)
            except LabError as error:
                waiting.pause_after(error, repeatable)

    def stream_lines(self, path: str, query: Query | None = None) -> Iterator[bytes]:
        """Lines of an answer that is the same each time, each once: where it breaks off it is asked for again. Raises LabError."""
        waiting, seen = Waiting(self.patience), 0
        while True:
            try:
                with self.client.open_response("GET", build_address(path, query)) as response:
                    for number, line in enumerate(read_whole_lines(response)):
                        if number >= seen:
                            seen, waiting = number + 1, Waiting(self.patience)
                            yield line
                    return
            except LabError as error:
                waiting.pause_after(error, True)
            except (OSError, HTTPException) as error:
                waiting.pause_after(self.client.explain_failed_request(error), True)

    def decode_answer(self, text: bytes, kind: type[Answer]) -> Answer:
        try:
            return msgspec.json.decode(text, type=kind)
        except msgspec.MsgspecError as error:
            raise LabError(f"the answer of {self.client.url} is not what this client expects ({error}): install the client from this lab") from None


class Waiting:
    """The pauses of one request. Raises the error itself when no waiting mends it, or the time is over."""

    def __init__(self, patience: float) -> None:
        self.deadline, self.tries = time.monotonic() + patience, 0

    def pause_after(self, error: LabError, repeatable: bool) -> None:
        if error.status not in PASSING or not error.temporary:
            raise error
        if not repeatable and error.arrived and error.status not in UNTOUCHED:
            raise error
        pause = max(error.wait, PAUSES[min(self.tries, len(PAUSES) - 1)])
        if time.monotonic() + pause > self.deadline:
            raise error
        self.tries += 1
        (log.warning if pause >= 5 else log.info)("%s; trying again in %.3g s", error, pause)
        time.sleep(pause)


def build_address(path: str, query: Query | None) -> str:
    """Values that are lists are repeated; None is left out."""
    given = [(name, value) for name, value in (query or {}).items() if value is not None]
    return API + path + (f"?{urlencode(given, doseq=True)}" if given else "")


def read_whole_lines(response: Any) -> Iterator[bytes]:
    """Raises OSError where the last line has no end: the connection was cut there."""
    for line in response:
        if not line.endswith(b"\n"):
            raise OSError("the answer broke off")
        yield line[:-1]
