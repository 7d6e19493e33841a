"""``Sandbox``: programs, functions, unit tests and queries, each in forks of their own."""

from __future__ import annotations

import base64
import math
import os
import signal
import socket
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from functools import cache, partial
from types import TracebackType
from typing import Any, Self, TypeVar, get_args

from trainers.sandbox.client import Ended, Request, ServerProcess
from trainers.sandbox.protocol import JAIL_FAILED, MEMORY
from trainers.sandbox.results import Outcome, ProgramLimits, ProgramResult, SandboxUnavailable, SqlResult, TestReport, TestVerdict, Verdict

Result = TypeVar("Result")
Arguments = Sequence[Any] | Mapping[str, Any]
DEFAULT = ProgramLimits()
KILL_AFTER = 1.0  # seconds past its limit, on a busy machine: until then a fork can say itself that its time was over
REPORT = 4096  # bytes of a report beside its value
OUTCOMES: tuple[str, ...] = get_args(Outcome)
VERDICTS: tuple[str, ...] = get_args(Verdict)


class Sandbox:
    """Runs what people and policies wrote. Its server starts at the first call; ``with`` or ``close`` ends it, and so does the end of this process.

    Threads may share it, and a process that was forked from this one gets a server of its own. Every method raises SandboxUnavailable where programs
    cannot be held, and ValueError for a program and input beyond 64 MiB; whatever a program does is in its result.
    ``at_once``: how many forks the methods for many keep running; as many as this process has cores.

    A program finds Python's own modules of ``MODULES``, no files, and the same random numbers and hashes every time: with the same input it gives the
    same result.
    """

    def __init__(self, at_once: int | None = None) -> None:
        self.at_once = at_once or len(os.sched_getaffinity(0))
        self.server = ServerProcess()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Ends the server and its forks; a later call starts another."""
        with self.server.lock:
            self.server.forget()

    def run_program(self, source: str, stdin: str = "", limits: ProgramLimits = DEFAULT) -> ProgramResult:
        """A whole program in a fork of its own. ``sys.exit(0)`` ends it well; ``value`` stays None."""
        return self.run_one({"kind": "program", "source": source, "stdin": stdin}, limits)

    def run_programs(self, programs: Iterable[tuple[str, str]], limits: ProgramLimits = DEFAULT) -> list[ProgramResult]:
        """(source, stdin) each, several at once, a fork each; results in order."""
        return self.run_together([partial(self.run_program, source, stdin, limits) for source, stdin in programs])

    def call_function(self, source: str, function_name: str, arguments: Arguments, limits: ProgramLimits = DEFAULT) -> ProgramResult:
        """Runs ``source`` (its ``__name__`` is not "__main__"), then calls a function that it defines: positional ``arguments`` from a sequence,
        named ones from a mapping. Arguments and value are what JSON holds; ``value`` may be NaN or infinite. Raises TypeError for arguments that
        are no JSON.
        """
        return self.call_function_many(source, function_name, [arguments], limits)[0]

    def call_function_many(self, source: str, function_name: str, calls: Sequence[Arguments], limits: ProgramLimits = DEFAULT) -> list[ProgramResult]:
        """As ``call_function``, for a function that is trusted with its own calls: ``source`` is run once and one fork makes all calls in order, each
        within ``limits.seconds`` and ``limits.output``; module variables live on. Where a call ends the fork the next ones get another.
        Code of a policy: ``call_function``, a fork for each.
        """
        results: list[ProgramResult] = []
        while len(results) < len(calls):
            rest = calls[len(results) :]
            request = {"kind": "calls", "source": source, "function": function_name, "calls": [copy_arguments(arguments) for arguments in rest]}
            ended = self.finish(request, limits, len(rest))
            given = [read_result(report, printed) for printed, report in ended.reports[: len(rest)]]
            if ended.reports and ended.reports[0][1].get("loading"):
                return results + given * len(rest)
            results += given
            if len(given) < len(rest):
                results.append(explain_end(ended, limits, after=len(given)))
        return results

    def run_tests(
        self,
        source: str,
        tests: Sequence[str],
        *,
        setup: str = "",
        names: Sequence[str] | None = None,
        limits: ProgramLimits = DEFAULT,
        total_seconds: float = 10.0,
    ) -> TestReport:
        """Unit tests of a policy's answer: ``source`` runs in one fork, the tests in another, so that the answer cannot forge verdicts.

        A test is Python that raises when the answer is wrong: ``assert add(1, 2) == 3``. ``setup`` runs before them in their fork: imports and
        helpers. ``names``: what tests may take from the answer (None: all it defines but the names of built-ins and of ``MODULES``); name them, and
        import in ``setup`` what tests use besides, since an answer may define ``isclose``, too. Tests share the answer's state, in order. Each has
        ``limits.seconds``; those that are not reached within ``total_seconds`` get "timeout". Values go over as data of Python's own types; of other
        objects tests can use attributes, calls, items, ``len``, ``str`` and arithmetic (``answers.py``). Comparing such objects, handing functions
        to the answer and catching its own exceptions are errors.
        """
        verdicts: list[TestVerdict] = []
        end = time.monotonic() + total_seconds
        while len(verdicts) < len(tests):
            left = end - time.monotonic()
            if left <= 0:
                verdicts.append(TestVerdict("timeout", f"not reached within {total_seconds:g} s"))
                continue
            question = {"kind": "tests", "setup": setup, "names": names and list(names), "tests": list(tests[len(verdicts) :])}
            ended = self.run_halves(source, question, limits, left)
            reports = [read_verdict(report) for _, report in ended.reports]
            if not reports or reports[0].verdict != "pass":
                failed = reports[0] if reports else TestVerdict("error", explain_end(ended, limits).error)
                return TestReport((*verdicts, *[failed] * (len(tests) - len(verdicts))), failed.message)
            verdicts += reports[1 : 1 + len(tests) - len(verdicts)]
            complete = ended.status == 0 and not ended.late
            if len(verdicts) < len(tests) and not complete:  # the fork ended in the middle of a test
                over = explain_end(ended, limits)
                verdicts.append(TestVerdict("timeout" if over.outcome == "timeout" else "error", over.error))
        return TestReport(tuple(verdicts))

    def run_io_tests(self, source: str, cases: Sequence[tuple[str, str]], limits: ProgramLimits = DEFAULT) -> TestReport:
        """Whole programs judged by what they print: (stdin, expected stdout) each, a fork each. Outputs are compared here, line by line without
        trailing blanks and empty lines at the end; a program never sees what is expected.
        """
        verdicts = []
        for (_, expected), result in zip(cases, self.run_programs([(source, stdin) for stdin, _ in cases], limits), strict=True):
            if not result.ok:
                verdict: Verdict = "timeout" if result.outcome == "timeout" else "error"
                verdicts.append(TestVerdict(verdict, result.error, result.seconds))
            elif split_printed_lines(result.stdout) == split_printed_lines(expected):
                verdicts.append(TestVerdict("pass", "", result.seconds))
            else:
                verdicts.append(TestVerdict("fail", f"printed {result.stdout[:100]!r} instead of {expected[:100]!r}", result.seconds))
        return TestReport(tuple(verdicts))

    def run_sql(self, setup: str, query: str, limits: ProgramLimits = DEFAULT, max_rows: int = 1000) -> SqlResult:
        """One reading query on a fresh SQLite database in memory that the statements of ``setup`` fill. Files, other databases and extensions are
        refused, and writing to the query. More than ``max_rows`` rows: "output".
        """
        result = self.run_one({"kind": "sql", "setup": setup, "query": query, "rows": max_rows}, limits)
        if not result.ok:
            return SqlResult(result.outcome, error=result.error, seconds=result.seconds)
        columns = tuple(str(name) for name in result.value["columns"])
        rows = tuple(tuple(decode_sql_value(value) for value in row) for row in result.value["rows"])
        return SqlResult("ok", columns, rows, seconds=result.seconds)

    def run_one(self, request: dict[str, Any], limits: ProgramLimits) -> ProgramResult:
        ended = self.finish(request, limits)
        if ended.late or ended.flooded or not ended.reports:
            return replace(explain_end(ended, limits), seconds=ended.seconds)
        printed, report = ended.reports[0]
        return replace(read_result(report, printed), seconds=ended.seconds)

    def finish(self, request: dict[str, Any], limits: ProgramLimits, actions: int = 1) -> Ended:
        """One fork from its start to its end, twice when the server went away meanwhile, which no program can bring about."""
        loading = limits.seconds if request["kind"] == "calls" else 0.0  # the source has as long as a call
        seconds = limits.seconds * actions + loading
        data = request | {"limits": encode_limits(limits, seconds)}
        sent = Request(data, seconds + KILL_AFTER, (2 * limits.output + REPORT) * actions, limits.seconds + loading + KILL_AFTER)
        for _ in range(2):
            fork = self.server.submit(sent)
            ended = fork.wait()
            if not ended.silent:
                break
            self.server.retire(fork.server)
        return require_jail(ended)

    def run_halves(self, source: str, question: dict[str, Any], limits: ProgramLimits, seconds: float) -> Ended:
        """An answer and its tests, joined by a socket pair; the answer is killed when the tests have ended."""
        own = replace(limits, seconds=min(limits.seconds, seconds))
        shared = {"limits": encode_limits(own, seconds)}
        reply, each = REPORT * (len(question["tests"]) + 1), own.seconds + KILL_AFTER
        for _ in range(2):
            ours, theirs = socket.socketpair()
            with ours, theirs:
                first = Request({"kind": "answer", "source": source} | shared, seconds + KILL_AFTER, REPORT, channel=ours)
                second = Request(question | shared, seconds + KILL_AFTER, reply, each, theirs)
                answer = self.server.submit(first)
                try:
                    tests = self.server.submit(second)
                    ours.close()  # else the halves would not hear of each other's end
                    theirs.close()
                    ended = tests.wait()
                finally:
                    answer.close()
            if not ended.silent:
                break
            self.server.retire(tests.server)
        return require_jail(ended)

    def run_together(self, actions: Sequence[Callable[[], Result]]) -> list[Result]:
        with ThreadPoolExecutor(self.at_once) as threads:
            return list(threads.map(lambda action: action(), actions))


@cache
def get_shared_sandbox() -> Sandbox:
    """One for the whole process."""
    return Sandbox()


def encode_limits(limits: ProgramLimits, seconds: float) -> dict[str, Any]:
    return asdict(limits) | {"cpu_seconds": limits.cpu_seconds or math.ceil(seconds + KILL_AFTER)}


def copy_arguments(arguments: Arguments) -> Any:
    return dict(arguments) if isinstance(arguments, Mapping) else list(arguments)


def split_printed_lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.rstrip().splitlines()]


def decode_sql_value(value: Any) -> Any:
    return base64.b64decode(value["bytes"]) if isinstance(value, dict) else value


def require_jail(ended: Ended) -> Ended:
    if not ended.jailed and ended.status is not None and not ended.late and os.waitstatus_to_exitcode(ended.status) == JAIL_FAILED:
        raise SandboxUnavailable(f"A program could not be locked in and was not run: {ended.refused}")
    return ended


def read_result(report: dict[str, Any], printed: str) -> ProgramResult:
    """A report may come from the program itself, so it is checked like any input."""
    outcome: Any = report.get("outcome")
    error, seconds = report.get("error"), report.get("seconds")
    if outcome not in OUTCOMES or not isinstance(error, str) or not isinstance(seconds, float):
        return ProgramResult("error", printed, error="it wrote to the pipe of its result")
    return ProgramResult(outcome, printed, report.get("value"), error, seconds)


def read_verdict(report: dict[str, Any]) -> TestVerdict:
    verdict: Any
    verdict, message, seconds = report.get("verdict"), report.get("message"), report.get("seconds")
    if verdict not in VERDICTS or not isinstance(message, str) or not isinstance(seconds, float):
        return TestVerdict("error", "the tests wrote to the pipe of their verdicts")
    return TestVerdict(verdict, message, seconds)


def explain_end(ended: Ended, limits: ProgramLimits, after: int = 0) -> ProgramResult:
    """For a fork that did not report: ``after`` reports, if any."""
    printed = ended.rest or (ended.reports[0][0] if ended.reports and not after else "")
    outcome: Outcome
    code = None if ended.status is None else os.waitstatus_to_exitcode(ended.status)
    if ended.flooded:
        outcome, words = "output", f"wrote more than {limits.output:,} bytes"
    elif ended.late or code == -signal.SIGXCPU:
        outcome, words = "timeout", f"took longer than {limits.seconds:g} s"
    elif code == MEMORY:
        outcome, words = "memory", "needs more memory than it may have"
    elif code is None:
        outcome, words = "killed", "the sandbox's server was killed twice while it ran"
    elif code < 0:
        outcome, words = "killed", f"killed by signal {-code} ({signal.Signals(-code).name})"
    else:
        outcome, words = "error", "it ended its process"
    return ProgramResult(outcome, printed, error=words, seconds=ended.seconds)
