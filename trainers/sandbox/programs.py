"""What a fork does once it is in its jail: run a program, call a function, ask a database. Its answer goes out in frames.

A frame is a letter, a length of four bytes, and so many bytes: "j" the jail holds (nothing of a program runs before), "o" something was printed,
"r" a report in JSON, which ends a program or one call.
"""

from __future__ import annotations

import io
import json
import os
import random
import signal
import sqlite3
import sys
import time
from collections.abc import Callable
from typing import Any

from trainers.sandbox.modules import FUNCTIONS, PROGRAM, make_module, run_source
from trainers.sandbox.protocol import FRAME
from trainers.sandbox.values import encode_value

PRINTED = 8192  # bytes that are printed before they are sent
SAID = 500  # characters of an error


class TimeIsUp(BaseException):
    """Not an Exception, so that programs which catch everything do not catch it by accident."""


class TooMuchOutput(BaseException):
    pass


def write_json(report: dict[str, Any]) -> bytes:
    """Half a surrogate, which is no text, becomes a question mark."""
    return json.dumps(report, ensure_ascii=False).encode("utf-8", "replace")


class Frames:
    """The way out of a fork."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor

    def send(self, letter: bytes, data: bytes) -> None:
        rest = memoryview(FRAME.pack(letter, len(data)) + data)
        while rest:
            rest = rest[os.write(self.descriptor, rest) :]

    def report(self, report: dict[str, Any]) -> None:
        self.send(b"r", write_json(report))


class CountedOutput(io.RawIOBase):
    """Standard output, up to ``limit`` bytes; beyond them the program is ended by TooMuchOutput. Without ``frames`` nothing is kept."""

    def __init__(self, frames: Frames | None, limit: int) -> None:
        self.frames, self.limit, self.left = frames, limit, limit

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        piece = bytes(data)
        if self.frames is None:
            return len(piece)
        kept = piece[: self.left]
        self.left -= len(kept)
        if kept:
            self.frames.send(b"o", kept)
        if len(kept) < len(piece):
            raise TooMuchOutput
        return len(piece)


def open_text_stream(raw: io.RawIOBase) -> io.TextIOWrapper:
    return io.TextIOWrapper(io.BufferedWriter(raw, PRINTED), "utf-8", "backslashreplace", newline="\n")


class Reporter:
    """Runs one action after the other within limits and says how each ended. ``limits``: ``seconds`` of the clock, ``output`` in bytes."""

    def __init__(self, frames: Frames, limits: dict[str, Any], stdin: str = "", keep_output: bool = True) -> None:
        self.frames, self.seconds, self.limit = frames, float(limits["seconds"]), int(limits["output"])
        self.printed = CountedOutput(frames if keep_output else None, self.limit)
        self.stdout = sys.stdout = open_text_stream(self.printed)
        sys.stderr = open_text_stream(CountedOutput(None, 0))
        sys.stdin = io.TextIOWrapper(io.BytesIO(stdin.encode("utf-8", "surrogatepass")), "utf-8", "backslashreplace")
        self.late = False
        signal.signal(signal.SIGALRM, self.end_action)

    def end_action(self, *_: object) -> None:
        self.late = True
        raise TimeIsUp

    def run_action(self, action: Callable[[], Any]) -> dict[str, Any]:
        """``outcome``, ``value`` and ``error`` of one action, and its ``seconds``."""
        began = time.monotonic()
        random.seed(0)
        self.printed.left, self.late = self.limit, False
        report: dict[str, Any]
        try:
            try:
                signal.setitimer(signal.ITIMER_REAL, self.seconds)
                report = {"outcome": "ok", "value": action(), "error": ""}
                self.stdout.flush()
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
        except BaseException as error:
            report = report_exception(TimeIsUp() if self.late else error, self.seconds, self.limit)
            flush_rest(self.stdout)
        return report | {"seconds": time.monotonic() - began}

    def send_action(self, action: Callable[[], Any]) -> None:
        report = self.run_action(action)
        try:
            data = write_json(report)
        except (TypeError, ValueError, RecursionError) as error:  # a value that is no JSON
            report |= {"outcome": "error", "error": f"the value cannot be written as JSON: {describe_exception(error)}", "value": None}
            data = write_json(report)
        except MemoryError:
            report |= {"outcome": "memory", "error": "the value needs too much memory", "value": None}
            data = write_json(report)
        if len(data) > self.limit + 2 * SAID:
            data = write_json(report | {"outcome": "output", "error": f"returned more than {self.limit:,} bytes", "value": None})
        self.frames.send(b"r", data)


def flush_rest(stream: io.TextIOWrapper) -> None:
    try:
        stream.flush()
    except BaseException:  # what does not fit is not sent
        return


def report_exception(error: BaseException, seconds: float, limit: int) -> dict[str, Any]:
    outcome, words = "error", ""
    if isinstance(error, TimeIsUp):
        outcome, words = "timeout", f"took longer than {seconds:g} s"
    elif isinstance(error, TooMuchOutput):
        outcome, words = "output", f"printed more than {limit:,} bytes"
    elif isinstance(error, MemoryError):
        outcome, words = "memory", "needs more memory than it may have"
    elif isinstance(error, SystemExit) and (error.code is None or (type(error.code) is int and error.code == 0)):
        outcome = "ok"
    else:
        words = describe_exception(error)
    return {"outcome": outcome, "value": None, "error": words}


def describe_exception(error: BaseException, named: bool = True) -> str:
    """Type and the program's last line in it around the message, which stands alone unless ``named``. The message is the program's own."""
    try:
        message = str(error)
    except BaseException:
        message = "(its message cannot be read)"
    line, trace = 0, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename.startswith("<program"):
            line = trace.tb_lineno
        trace = trace.tb_next
    said = " ".join(message.split())[:SAID]
    if not named:
        return said
    return f"{type(error).__name__}{': ' if said else ''}{said}{f' (line {line})' if line else ''}"


def run_program(request: dict[str, Any], frames: Frames) -> None:
    reporter = Reporter(frames, request["limits"], request["stdin"])
    reporter.send_action(lambda: run_source(request["source"], make_module(PROGRAM)))


def call_function(request: dict[str, Any], frames: Frames) -> None:
    """The source is run once, then every call is made; reports come one for each call, or one in all when the source fails."""
    reporter = Reporter(frames, request["limits"])
    namespace = make_module(FUNCTIONS)
    loaded = reporter.run_action(lambda: run_source(request["source"], namespace))
    function = namespace.get(request["function"])
    if loaded["outcome"] == "ok" and not callable(function):
        loaded |= {"outcome": "error", "error": f"defines no function named {request['function']!r}"}
    if loaded["outcome"] != "ok" or function is None:
        return frames.report(loaded | {"loading": True})
    for arguments in request["calls"]:
        if isinstance(arguments, dict):
            reporter.send_action(lambda named=arguments: function(**named))  # type: ignore[misc]
        else:
            reporter.send_action(lambda listed=arguments: function(*listed))  # type: ignore[misc]
    return None


def ask_database(request: dict[str, Any], frames: Frames) -> None:
    """A fresh database in memory, filled by ``setup``; then one query that may only read."""
    reporter = Reporter(frames, request["limits"])

    def answer() -> dict[str, Any]:
        with sqlite3.connect(":memory:", isolation_level=None) as connection:
            connection.execute("PRAGMA temp_store = MEMORY")
            connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, int(request["limits"]["output"]))
            connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
            connection.set_progress_handler(lambda: 0, 10_000)  # lets the alarm interrupt a query
            connection.set_authorizer(allow_filling)
            connection.executescript(request["setup"])
            connection.set_authorizer(allow_reading)
            cursor = connection.execute(request["query"])
            rows = cursor.fetchmany(request["rows"] + 1)
            if len(rows) > request["rows"]:
                raise TooMuchOutput
            return {"columns": [column[0] for column in cursor.description or ()], "rows": [[encode_value(value) for value in row] for row in rows]}

    reporter.send_action(answer)


def allow_filling(action: int, name: str | None, *_: str | None) -> int:
    if action == sqlite3.SQLITE_PRAGMA and name == "foreign_keys":  # dumps begin with it
        return sqlite3.SQLITE_OK
    refused = (sqlite3.SQLITE_ATTACH, sqlite3.SQLITE_DETACH, sqlite3.SQLITE_PRAGMA, sqlite3.SQLITE_CREATE_VTABLE)
    return sqlite3.SQLITE_DENY if action in refused else sqlite3.SQLITE_OK


def allow_reading(action: int, *_: str | None) -> int:
    allowed = (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE)
    return sqlite3.SQLITE_OK if action in allowed else sqlite3.SQLITE_DENY
