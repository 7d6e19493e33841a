"""Speaking to a lab over HTTP, with nothing but the standard library."""

from __future__ import annotations

import json
import os
import socket
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from http.client import NO_CONTENT, HTTPException, HTTPResponse
from typing import Any
from urllib.parse import urlsplit

from trainers.contract.problems import Problem

TIMEOUT = 30.0
TEMPORARY = (408, 425, 429, 500, 502, 503, 504)


class LabError(Exception):
    """The lab refused a request; the message is its own words. ``temporary`` errors are worth another try after ``wait`` seconds.

    ``status`` is that of the answer, 0 where there was none; ``arrived`` is False where the lab cannot have seen the request. ``problems``: each
    invalid field, what is wrong with it and the fix.
    """

    def __init__(
        self,
        message: str,
        status: int = 0,
        temporary: bool = False,
        wait: float = 0.0,
        *,
        arrived: bool = True,
        problems: tuple[Problem, ...] = (),
    ) -> None:
        super().__init__(message)
        self.status, self.temporary, self.wait = status, temporary, wait
        self.arrived, self.problems = arrived, problems


@dataclass(frozen=True)
class LabReply:
    """``offset`` bytes of the spool are in the lab; ``stop``: somebody asked for the run to stop."""

    offset: int
    stop: bool


class NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect would carry the token to wherever it leads."""

    def redirect_request(self, *args: Any, **kwargs: Any) -> None:
        return None


class LabClient:
    """``url`` and ``token`` come from LAB_URL and LAB_TOKEN when not given. Raises LabError when either is missing or makes no sense."""

    def __init__(self, url: str | None = None, token: str | None = None) -> None:
        self.url = (url or os.environ.get("LAB_URL", "")).rstrip("/")
        self.token = token or os.environ.get("LAB_TOKEN", "")
        if urlsplit(self.url).scheme not in ("http", "https") or not urlsplit(self.url).hostname:
            raise LabError(f"LAB_URL must be the lab's address, such as https://lab.example.org; it is {self.url!r}")
        if not self.token:
            raise LabError("LAB_TOKEN must be an access token of the lab: create one under your account, with the scope runs.send")
        self.opener = urllib.request.build_opener(NoRedirect)

    def open_run(self, **opening: Any) -> tuple[str, int]:
        """(path of the run's page, bytes of its spool the lab has); the same ``key`` opens the same run again. Raises LabError."""
        said = self.request_json("POST", "/api/v1/outside/runs", json.dumps(opening).encode(), {"Content-Type": "application/json"})
        return str(said["url"]), int(said["offset"])

    def send(self, key: str, offset: int, data: bytes) -> LabReply:
        """Sends whole lines of the spool that begin at byte ``offset``; the answer says from where to go on. Raises LabError."""
        said = self.request_json("POST", f"/api/v1/outside/runs/{key}/events?offset={offset}", data, {"Content-Type": "application/x-ndjson"})
        return LabReply(int(said["offset"]), bool(said["stop"]))

    def request_json(self, method: str, path: str, body: bytes, headers: dict[str, str]) -> dict[str, Any]:
        text = self.request_bytes(method, path, body, headers)
        try:
            return dict(json.loads(text))
        except ValueError as error:
            raise self.explain_failed_request(error) from None

    def request_bytes(self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None) -> bytes:
        """The whole answer. Raises LabError."""
        try:
            with self.open_response(method, path, body, headers) as response:
                text = response.read()
                if not text and response.status != NO_CONTENT:
                    raise OSError("the answer broke off")  # within its headers, so that nothing says how long it would have been
                return text
        except (OSError, HTTPException) as error:  # cut off in the middle
            raise self.explain_failed_request(error) from None

    def open_response(self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None) -> HTTPResponse:
        """An answer that is read, and closed, by the caller. Raises LabError."""
        request = urllib.request.Request(self.url + path, body, {**(headers or {}), "Authorization": f"Bearer {self.token}"}, method=method)
        try:
            return self.opener.open(request, timeout=TIMEOUT)
        except urllib.error.HTTPError as error:
            raise lab_error_from_response(error) from None
        except (OSError, HTTPException, ValueError) as error:
            raise self.explain_failed_request(error) from None

    def explain_failed_request(self, error: Exception) -> LabError:
        """No connection, cut off in the middle, or an answer that is none of the lab's."""
        unsent = isinstance(getattr(error, "reason", error), ConnectionRefusedError | socket.gaierror)
        return LabError(f"the lab at {self.url} cannot be reached: {error}", temporary=True, arrived=not unsent)


def lab_error_from_response(error: urllib.error.HTTPError) -> LabError:
    try:
        problem = json.loads(error.read(1 << 16))
    except (OSError, ValueError):
        problem = {}
    problem = problem if isinstance(problem, dict) else {}
    parts = [str(problem.get("detail") or problem.get("title") or error.reason)]
    problems = tuple(
        Problem(str(one.get("field", "")), None, str(one.get("message", "")), str(one.get("fix", "")), given=False)
        for one in problem.get("errors") or []
        if isinstance(one, dict)
    )
    parts += [str(one) for one in problems if f"{one.field}: {one.message}" != parts[0] or one.fix]
    waits = error.headers.get("Retry-After", "")
    wait = float(waits) if waits.isdigit() else 0.0
    return LabError(f"{error.code}: {'; '.join(parts)}", error.code, error.code in TEMPORARY, wait, problems=problems)
