"""Reading what a labelling page sends: JSON that PostgreSQL can hold, or words about what is wrong with it."""

from __future__ import annotations

import json
import math
import uuid
from typing import Any

from django.core.exceptions import RequestDataTooBig
from django.http import HttpRequest, UnreadablePostError

from lab.labels.answers import AnswerError, Problem

LARGEST = 1_000_000  # bytes of a request
DEEPEST = 12  # lists and objects inside each other
MOST_TOKENS = 20
MAX_INT = 2**53  # what a script can count to


def body(request: HttpRequest) -> dict[str, Any]:
    """The object that was sent, its texts without NUL and lone surrogates. Raises AnswerError."""
    try:
        raw = request.body
    except (RequestDataTooBig, UnreadablePostError):
        raw = b" " * (LARGEST + 1)
    if len(raw) > LARGEST:
        raise wrong("body", f"This is more than {LARGEST // 1000:,} kB.", "Shorten your texts.")
    try:
        found = json.loads(raw or b"{}", parse_constant=refuse, parse_float=finite)
    except (ValueError, RecursionError):
        raise wrong("body", "This is not JSON.", "Reload the page; your draft is kept.") from None
    if not isinstance(found, dict):
        raise wrong("body", "An object was expected.", "Reload the page; your draft is kept.")
    return {str(name): holdable(value, str(name)[:50]) for name, value in found.items()}


def refuse(name: str) -> float:
    raise ValueError(name)


def finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(text)
    return value


def holdable(value: Any, name: str, depth: int = 0) -> Any:
    if depth > DEEPEST:
        raise wrong(name, "This is nested too deeply.", "Reload the page.")
    if isinstance(value, str):
        return text(value)
    if isinstance(value, list):
        return [holdable(one, name, depth + 1) for one in value]
    if isinstance(value, dict):
        return {text(str(key)): holdable(one, name, depth + 1) for key, one in value.items()}
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > MAX_INT:
        raise wrong(name, "This number is too large.", "Reload the page.")
    return value


def text(value: str) -> str:
    """As the ingest stores a model's text: the symbol for NUL, and the replacement character for half of a pair."""
    return value.replace("\x00", "\u2400").encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def wrong(field: str, message: str, fix: str) -> AnswerError:
    return AnswerError([Problem(field, message, fix)])


def only(sent: dict[str, Any], *names: str) -> None:
    """Raises AnswerError for a field that is not one of ``names``."""
    if unknown := [name for name in sent if name not in names]:
        raise AnswerError([Problem(name[:50], "There is no such field.", f"Send {', '.join(names)}.") for name in unknown[:5]])


def identifier(sent: dict[str, Any], name: str) -> uuid.UUID:
    return as_uuid(sent.get(name), name)


def as_uuid(value: Any, name: str) -> uuid.UUID:
    try:
        if isinstance(value, str):
            return uuid.UUID(value)
    except ValueError:
        pass
    raise wrong(name, "This is not an identifier.", "Reload the page; your draft is kept.")


def identifiers(sent: dict[str, Any], name: str) -> list[uuid.UUID]:
    given = sent.get(name)
    if not isinstance(given, list) or len(given) > MOST_TOKENS:
        raise wrong(name, f"This is a list of at most {MOST_TOKENS} identifiers.", "Reload the page.")
    return [as_uuid(one, name) for one in given]


def mapping(sent: dict[str, Any], name: str) -> dict[str, Any]:
    given = sent.get(name)
    if not isinstance(given, dict):
        raise wrong(name, "This is an object.", "Reload the page; your draft is kept.")
    return given
