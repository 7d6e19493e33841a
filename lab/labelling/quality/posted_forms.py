"""What the pages of quality post, as a form or as JSON, and what they get back in words."""

from __future__ import annotations

import json
from typing import Any

from django.http import JsonResponse

from lab.labelling.labels.answers import AnswerError, Problem
from lab.labelling.labels.labeller_standing import Refused
from lab.teams.accounts.requests import LabRequest

COMMENT = 10_000  # characters


class NotReadable(Exception):
    """The body is no JSON object."""


def wants_json(request: LabRequest) -> bool:
    return (request.content_type or "").startswith("application/json")


def body_of(request: LabRequest) -> dict[str, Any]:
    """The fields of a form, or of a JSON object. Raises NotReadable."""
    if not wants_json(request):
        return dict(request.POST.items())
    try:
        found = json.loads(request.body)
    except (ValueError, RecursionError) as error:
        raise NotReadable from error
    if not isinstance(found, dict):
        raise NotReadable
    return found


def comment_of(data: dict[str, Any]) -> str:
    """Raises AnswerError for one that is no text, or too long."""
    value = data.get("comment") or ""
    if not isinstance(value, str):
        raise AnswerError([Problem("comment", "The comment must be text.", "Enter text.")])
    if len(value) > COMMENT:
        raise AnswerError([Problem("comment", f"At most {COMMENT:,} characters; this has {len(value):,}.", "Shorten it.")])
    return value.replace("\0", "").strip()


def refused_json(refused: Refused) -> JsonResponse:
    return JsonResponse({"message": refused.message, "fix": refused.fix}, status=403)


def problems_json(problems: list[Problem]) -> JsonResponse:
    return JsonResponse({"problems": [problem.__dict__ for problem in problems]}, status=422)


def not_readable() -> JsonResponse:
    return problems_json([Problem("body", "The body is not a JSON object.", "Send an object with the fields of the page.")])
