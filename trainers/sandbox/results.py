"""What a program may use and what is known of it afterwards."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

Outcome = Literal["ok", "error", "timeout", "memory", "output", "killed"]
Verdict = Literal["pass", "fail", "error", "timeout"]

# What programs can import, with the submodules that come with them. Nothing here opens files or sockets at its import.
MODULES = (
    *(
        "abc",
        "array",
        "ast",
        "base64",
        "binascii",
        "bisect",
        "calendar",
        "cmath",
        "collections",
        "colorsys",
        "contextlib",
        "copy",
        "csv",
        "dataclasses",
    ),
    *(
        "datetime",
        "decimal",
        "difflib",
        "enum",
        "fractions",
        "functools",
        "graphlib",
        "hashlib",
        "heapq",
        "html",
        "io",
        "itertools",
        "json",
        "keyword",
    ),
    *("math", "numbers", "operator", "pprint", "queue", "random", "re", "reprlib", "secrets", "shlex", "sqlite3", "statistics", "string", "struct"),
    *("sys", "textwrap", "time", "tokenize", "traceback", "types", "typing", "unicodedata", "uuid", "warnings", "zlib", "__future__"),
)


class SandboxUnavailable(RuntimeError):
    """This machine cannot hold programs, so none is run; the message says what is missing and how to get it."""


@dataclass(frozen=True)
class ProgramLimits:
    """``seconds`` of the clock for one program, one call of a batch, or one test. ``cpu_seconds`` of a processor, whole, for the process it runs
    in (0: what ``seconds`` allows). ``memory`` in bytes, beyond what Python itself takes; ``output``: bytes of what is printed, and as many of the
    value.
    """

    seconds: float = 2.0
    cpu_seconds: int = 0
    memory: int = 256 << 20
    output: int = 256 << 10

    def __post_init__(self) -> None:
        for name in ("seconds", "memory", "output"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} = {getattr(self, name)!r}: must be above 0")


@dataclass(frozen=True)
class ProgramResult:
    """How one program or call ended.

    ``outcome``: "ok"; "error" (an exception, or it ended its process); "timeout" (clock or processor); "memory"; "output" (printed or returned too
    much); "killed" (by a signal, as after overflowing the stack). ``stdout`` is what was printed until then. ``value``: what a called function
    returned, as JSON holds it. ``error``: one line for people, empty when the outcome is "ok". ``seconds`` of the clock, the start of its fork
    included; of a call in a batch those of the call.

    Everything here was said by the program, "timeout" and "killed" apart: a program can print what it likes and end well.
    """

    outcome: Outcome
    stdout: str = ""
    value: Any = None
    error: str = ""
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        return self.outcome == "ok"


@dataclass(frozen=True)
class SqlResult:
    """Rows of a query in order; values are None, int, float, str or bytes. ``outcome`` and ``error`` as of a program."""

    outcome: Outcome
    columns: tuple[str, ...] = ()
    rows: tuple[tuple[Any, ...], ...] = ()
    error: str = ""
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        return self.outcome == "ok"


@dataclass(frozen=True)
class TestVerdict:
    """ "pass"; "fail" (an assertion, or another output than expected); "error" (anything else that was raised); "timeout". ``message`` says why."""

    __test__ = False  # not a test of pytest's

    verdict: Verdict
    message: str = ""
    seconds: float = 0.0


@dataclass(frozen=True)
class TestReport:
    """One verdict for each test, in order. ``error``: why no test could run (the answer does not load, the tests' set-up fails); "" otherwise."""

    __test__ = False

    verdicts: tuple[TestVerdict, ...]
    error: str = ""

    @property
    def passed(self) -> int:
        return sum(verdict.verdict == "pass" for verdict in self.verdicts)

    @property
    def share(self) -> float:
        """Of the tests that passed; 0 without tests."""
        return self.passed / len(self.verdicts) if self.verdicts else 0.0
