"""A log as JSON, one object a line, for what collects logs (LAB_LOG_FORMAT=json)."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime

from lab.lib.log_context import NAMES
from lab.lib.redaction import redact_secrets


def format_note(logger: str, text: str) -> str:
    """A line, with level INFO, for what a command says on its standard output instead of logging it."""
    return JsonFormatter().format(logging.LogRecord(logger, logging.INFO, "", 0, text, None, None))


class JsonFormatter(logging.Formatter):
    """``time`` (UTC, ISO 8601), ``level``, ``logger``, ``message``, what of ``request``, ``run``, ``team`` is known, and ``exception``.

    Whatever a message holds stays within its line: line ends and control characters are escaped.
    """

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": redact_secrets(record.getMessage()),
        }
        line |= {name: value for name in NAMES if isinstance(value := getattr(record, name, ""), str) and value}
        if trace := self.describe_exception(record):
            line["exception"] = trace
        return json.dumps(line)

    def describe_exception(self, record: logging.LogRecord) -> str:
        """The traceback, and the stack where one was asked for."""
        trace = record.exc_text or (self.formatException(record.exc_info) if record.exc_info and record.exc_info[0] else "")
        stack = self.formatStack(record.stack_info) if record.stack_info else ""
        return redact_secrets("\n".join(part for part in (trace, stack) if part))
