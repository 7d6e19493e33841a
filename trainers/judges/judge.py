"""A judge or expert behind an OpenAI-compatible endpoint. Optional: every method that can ask one has a rule that needs none.

The endpoint comes from the worker's environment, never from a form, so nobody can point a worker at an address with a run:
``LAB_JUDGE_URL`` (up to and with /v1), ``LAB_JUDGE_MODEL``, ``LAB_JUDGE_KEY`` (may be empty).
"""

import json
import os
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from http.client import HTTPException
from typing import Any

TRIES = 3
TIMEOUT_SECONDS = 60.0
PARALLEL = 8
PATIENT = {408, 429, 500, 502, 503, 504}  # answers that are worth another try
LARGEST_ANSWER = 1 << 20  # bytes


class JudgeFailed(RuntimeError):
    """The endpoint did not answer, or not as an OpenAI-compatible one does."""


class NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect would send the key to an address that nobody set up."""

    def redirect_request(self, *args: Any) -> None:
        return None


opener = urllib.request.build_opener(NoRedirect)


@dataclass(frozen=True)
class JudgeReply:
    """``tokens``: of question and answer together, as the endpoint counts them; 0 where it does not."""

    text: str
    tokens: int = 0


@dataclass(frozen=True)
class Judge:
    url: str
    model: str
    key: str = ""
    pause: float = 1.0  # seconds before the second try; doubled for the third

    @classmethod
    def from_environment(cls) -> "Judge | None":
        url = os.environ.get("LAB_JUDGE_URL", "").rstrip("/")
        return cls(url, os.environ.get("LAB_JUDGE_MODEL", ""), os.environ.get("LAB_JUDGE_KEY", "")) if url else None

    def ask(self, questions: Sequence[str], max_tokens: int = 256) -> list[str]:
        """One answer for each question, in order, at temperature 0. Raises JudgeFailed."""
        with ThreadPoolExecutor(PARALLEL) as pool:
            return list(pool.map(lambda question: self.ask_one(question, max_tokens), questions))

    def ask_one(self, question: str, max_tokens: int) -> str:
        return self.ask_for_reply(question, max_tokens).text

    def ask_for_reply(self, question: str, max_tokens: int) -> JudgeReply:
        """One answer and what it cost. Raises JudgeFailed."""
        body = {"model": self.model, "messages": [{"role": "user", "content": question}], "temperature": 0, "max_tokens": max_tokens}
        headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {self.key}"} if self.key else {})
        if not self.url.startswith(("http://", "https://")):
            raise JudgeFailed(f"the judge's address {self.url} begins with neither http:// nor https://; check LAB_JUDGE_URL")
        request = urllib.request.Request(f"{self.url}/chat/completions", json.dumps(body).encode(), headers)
        problem = ""
        for attempt in range(TRIES):
            if attempt:
                time.sleep(self.pause * 2 ** (attempt - 1))
            try:
                with opener.open(request, timeout=TIMEOUT_SECONDS) as answer:
                    said = answer.read(LARGEST_ANSWER)
                return JudgeReply(parse_judge_reply(said), read_token_count(said))
            except urllib.error.HTTPError as error:
                problem = f"status {error.code}"
                if error.code not in PATIENT:
                    break
            except (OSError, HTTPException) as error:
                problem = f"{type(error).__name__}: {error}"
            except (ValueError, LookupError, TypeError, RecursionError):
                problem = "it does not answer as an OpenAI-compatible endpoint does"
                break
        raise JudgeFailed(f"the judge at {self.url} failed: {problem}; check LAB_JUDGE_URL, LAB_JUDGE_MODEL and LAB_JUDGE_KEY")


def read_token_count(body: bytes) -> int:
    usage = json.loads(body).get("usage")
    total = usage.get("total_tokens") if isinstance(usage, dict) else None
    return total if type(total) is int and total > 0 else 0


def parse_judge_reply(body: bytes) -> str:
    """The first choice's text. Raises ValueError, LookupError or TypeError for anything that is no chat completion."""
    found = json.loads(body)["choices"][0]["message"]["content"]
    if not isinstance(found, str):  # null where a model called a tool or refused
        raise TypeError(found)
    return found
