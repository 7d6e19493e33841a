"""What a message of the broker may name: whoever can write to Redis can send anything, so a task looks at what it was given before it uses it."""

from __future__ import annotations

import logging
import uuid

from lab.lib.numbers import MAX_ID

log = logging.getLogger(__name__)


def row_uuid(task: str, value: object) -> str:
    """``value`` as the text of a UUID; empty, and a line in the log, when it is none."""
    if isinstance(value, str):
        try:
            return str(uuid.UUID(value))
        except ValueError:
            pass
    return log_refused_message(task)


def row_id(task: str, value: object) -> int:
    """``value`` as the id of a row; 0, which no row has, and a line in the log, when it is none."""
    if isinstance(value, int) and not isinstance(value, bool) and 0 < value <= MAX_ID:
        return value
    log_refused_message(task)
    return 0


def log_refused_message(task: str) -> str:
    log.error("a message for the task %s names no row: it does not come from the lab, or from another version of it; it is dropped", task)
    return ""
