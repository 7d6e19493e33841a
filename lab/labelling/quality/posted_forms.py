"""What the pages of quality post, as a form or as JSON, and what they get back in words."""

from __future__ import annotations

import json
from typing import Any

from lab.labelling.labels.answers import AnswerError
from lab.lib.refusal_answers import wants_json
from lab.lib.refusals import Problem
from lab.teams.accounts.requests import LabRequest

COMMENT = 10_000  # characters


def body_of(request: LabRequest) -> dict[str, Any]:
    """The fields of a form, or of a JSON object. Raises AnswerError."""
    if not wants_json(request):
        return dict(request.POST.items())
    try:
        body = json.loads(request.body)
    except (ValueError, RecursionError):
        body = None
    if not isinstance(body, dict):
        raise AnswerError([Problem("body", "The body is not a JSON object.", "Send an object with the fields of the page.")])
    return body


def comment_of(data: dict[str, Any]) -> str:
    """Raises AnswerError for one that is no text, or too long."""
    value = data.get("comment") or ""
    if not isinstance(value, str):
        raise AnswerError([Problem("comment", "The comment must be text.", "Enter text.")])
    if len(value) > COMMENT:
        raise AnswerError([Problem("comment", f"At most {COMMENT:,} characters; this has {len(value):,}.", "Shorten it.")])
    return value.replace("\0", "").strip()
