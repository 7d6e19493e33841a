"""What the lab says when it does not do what somebody asked: one exception for every room, in words for the person who asked.

Views let it through (``lab.lib.refusal_answers`` makes a page or JSON of it) or put it where it belongs: beside an input, into a message.
The API answers it as problem JSON (``lab.edges.api.problems``). Without Django, so that children with limits can raise it too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Problem:
    """One thing that has to change: the input ``field``, why, and what to do about it."""

    field: str
    message: str
    fix: str = ""


class Refusal(Exception):
    """``message`` says why not, ``fix`` what to do, ``field`` names the input at fault.

    ``status`` is the answer's, ``code`` what a script tells refusals of one status apart by. ``problems``: everything that stands in the way, when
    that is several things. ``counts``: what was counted on the way, for whoever keeps the refusal.
    """

    def __init__(
        self,
        message: str,
        fix: str = "",
        field: str = "",
        *,
        status: int = 409,
        code: str = "",
        problems: Sequence[Problem] = (),
        counts: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.message, self.fix, self.field = message, fix, field
        self.status, self.code, self.problems, self.counts = status, code, list(problems), dict(counts or {})

    def __str__(self) -> str:
        return f"{self.message} {self.fix}".strip()


class InputRefusal(Refusal):
    """What was sent cannot be taken as it is: each input that has to change. ``location`` is where they stand in a body of the API."""

    location = ""

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__(
            "; ".join(f"{problem.field}: {problem.message}{f' ({problem.fix})' if problem.fix else ''}" for problem in problems),
            status=422,
            problems=problems,
        )

    @property
    def errors(self) -> dict[str, str]:
        """As forms show them: input → words."""
        return {problem.field: problem.message for problem in self.problems}
