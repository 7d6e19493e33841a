"""Reading what a labelling page sends: JSON that PostgreSQL can hold, or words about what is wrong with it."""

from __future__ import annotations

import json
import math
import uuid
from typing import Any

from django.core.exceptions import RequestDataTooBig
from django.http import HttpRequest, UnreadablePostError

from lab.labelling.labels.answers import AnswerError
from lab.lib.refusals import Problem

LARGEST = 1_000_000  # bytes of a request
DEEPEST = 12  # lists and objects inside each other
MOST_TOKENS = 20
MAX_INT = 2**53  # what a script can count to


def parse_json_body(request: HttpRequest) -> dict[str, Any]:
    """The object that was sent, its texts without NUL and lone surrogates. Raises AnswerError."""
    try:
        raw = request.body
    except (RequestDataTooBig, UnreadablePostError):
        raw = b" " * (LARGEST + 1)
    if len(raw) > LARGEST:
        raise make_answer_error("body", f"This is more than {LARGEST // 1000:,} kB.", "Shorten your texts.")
    try:
        body = json.loads(raw or b"{}", parse_constant=refuse_constant, parse_float=parse_finite_float)
    except (ValueError, RecursionError):
        raise make_answer_error("body", "This is not JSON.", "Reload the page; your draft is kept.") from None
    if not isinstance(body, dict):
        raise make_answer_error("body", "An object was expected.", "Reload the page; your draft is kept.")
    return {str(name): to_storable_value(value, str(name)[:50]) for name, value in body.items()}


def refuse_constant(name: str) -> float:
    raise ValueError(name)


def parse_finite_float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(text)
    return value


def to_storable_value(value: Any, name: str, depth: int = 0) -> Any:
    if depth > DEEPEST:
        raise make_answer_error(name, "This is nested too deeply.", "Reload the page.")
    if isinstance(value, str):
        return to_storable_text(value)
    if isinstance(value, list):
        return [to_storable_value(inner, name, depth + 1) for inner in value]
    if isinstance(value, dict):
        return {to_storable_text(str(key)): to_storable_value(inner, name, depth + 1) for key, inner in value.items()}
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > MAX_INT:
        raise make_answer_error(name, "This number is too large.", "Reload the page.")
    return value


def to_storable_text(value: str) -> str:
    """As the ingest stores a model's text: the symbol for NUL, and the replacement character for half of a pair."""
    return value.replace("\x00", "\u2400").encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def make_answer_error(field: str, message: str, fix: str) -> AnswerError:
    return AnswerError([Problem(field, message, fix)])


def require_only_fields(sent: dict[str, Any], *names: str) -> None:
    """Raises AnswerError for a field that is not one of ``names``."""
    if unknown := [name for name in sent if name not in names]:
        raise AnswerError([Problem(name[:50], "There is no such field.", f"Send {', '.join(names)}.") for name in unknown[:5]])


def parse_uuid_field(sent: dict[str, Any], name: str) -> uuid.UUID:
    return as_uuid(sent.get(name), name)


def as_uuid(value: Any, name: str) -> uuid.UUID:
    try:
        if isinstance(value, str):
            return uuid.UUID(value)
    except ValueError:
        pass
    raise make_answer_error(name, "This is not an identifier.", "Reload the page; your draft is kept.")


def parse_uuid_list(sent: dict[str, Any], name: str) -> list[uuid.UUID]:
    given = sent.get(name)
    if not isinstance(given, list) or len(given) > MOST_TOKENS:
        raise make_answer_error(name, f"This is a list of at most {MOST_TOKENS} identifiers.", "Reload the page.")
    return [as_uuid(text, name) for text in given]


def parse_mapping_field(sent: dict[str, Any], name: str) -> dict[str, Any]:
    given = sent.get(name)
    if not isinstance(given, dict):
        raise make_answer_error(name, "This is an object.", "Reload the page; your draft is kept.")
    return given
