"""Unit tests of code that may want to pass without being right: the answer runs in one fork, its tests in another.

Only the tests' fork has the tests, what they expect, and the pipe on which verdicts are sent. Where a test uses a name of the answer, it gets a
``Remote``: a call goes over a socket pair, and back comes data of Python's own types (``values``). An answer that ends its process, replaces
``__eq__`` or built-in functions, prints verdicts or registers functions for the end changes nothing but its own values.

An object that is no plain data stays where it is, and the test holds a reference that can be called, asked for attributes, iterated and so on.
What it is equal to only the answer could say, so comparing one is an error.
"""

from __future__ import annotations

import builtins
import importlib
import json
import operator
import os
from collections.abc import Callable, Iterator
from typing import Any

from trainers.sandbox.modules import ANSWER, TESTS, make_module, run_source
from trainers.sandbox.programs import SAID, Frames, Reporter, TimeIsUp, TooMuchOutput, describe_exception
from trainers.sandbox.results import MODULES
from trainers.sandbox.values import decode_value, encode_value

LINE = 8 << 20  # bytes of a question or a reply
ARITHMETIC = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "neg", "abs")
OPERATIONS: dict[str, Callable[..., Any]] = {
    "call": lambda target, *arguments, **keywords: target(*arguments, **keywords),
    "attribute": getattr,
    "item": operator.getitem,
    "set_item": operator.setitem,
    "iterate": iter,
    "next": next,
    "length": len,
    "text": str,
    "shown": repr,
    "truth": bool,
    "float": float,
    **{name: getattr(operator, name) for name in ARITHMETIC},
}


class AnswerFailed(Exception):
    """The answer ended, or sent what is no reply."""


class Lines:
    """JSON, one value a line, over a descriptor, with plain ``read`` and ``write``: a jail has no other system calls."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor, self.rest = descriptor, b""

    def send(self, value: Any) -> None:
        data = memoryview(json.dumps(value).encode() + b"\n")
        while data:
            data = data[os.write(self.descriptor, data) :]

    def read(self) -> Any:
        """Raises EOFError at the end, ValueError for what is no JSON or too long."""
        pieces = [self.rest]
        while b"\n" not in pieces[-1]:
            pieces.append(os.read(self.descriptor, 1 << 16))
            if not pieces[-1]:
                raise EOFError
            if sum(map(len, pieces)) > LINE:
                raise ValueError(f"longer than {LINE >> 20} MiB")
        line, _, self.rest = b"".join(pieces).partition(b"\n")
        return json.loads(line)


def run_answer(request: dict[str, Any], frames: Frames, channel: int) -> None:
    """The answer's half: loads it, then does what the tests ask until they end."""
    lines, objects = Lines(channel), list[Any]()

    def refer(value: Any) -> Any:
        objects.append(value)
        return {"object": len(objects) - 1}

    reporter = Reporter(frames, request["limits"], keep_output=False)
    namespace = make_module(ANSWER)
    loaded = reporter.run_action(lambda: run_source(request["source"], namespace, "<program>"))
    if loaded["outcome"] != "ok":
        return lines.send({"failed": loaded["error"] or loaded["outcome"], "verdict": "timeout" if loaded["outcome"] == "timeout" else "error"})
    names = {name: encode_value(value, refer) for name, value in list(namespace.items()) if type(name) is str and not name.startswith("__")}
    lines.send({"names": names})
    while True:
        try:
            question = lines.read()
        except EOFError:
            return None
        lines.send(reply_to(question, objects, refer))


def reply_to(question: dict[str, Any], objects: list[Any], refer: Callable[[Any], Any]) -> dict[str, Any]:
    def resolve(data: dict[str, Any]) -> Any:
        return objects[data["object"]]

    try:
        arguments = [decode_value(item, resolve) for item in question["arguments"]]
        keywords = {name: decode_value(item, resolve) for name, item in question["keywords"].items()}
        value = OPERATIONS[question["operation"]](objects[question["target"]], *arguments, **keywords)
        # Arguments that were changed in place, for the test to see.
        after = [encode_value(item, refer) if isinstance(item, list | dict | set | bytearray) else None for item in arguments]
        changed = {place: item for place, item in enumerate(after) if item is not None and item != question["arguments"][place]}
        reply = {"value": encode_value(value, refer), "changed": changed}
        json.dumps(reply)
        return reply
    except BaseException as error:
        return {"raised": type(error).__name__, "message": describe_exception(error, named=False), "described": describe_exception(error)}


class Answer:
    """The tests' end of the channel."""

    def __init__(self, channel: int) -> None:
        self.lines = Lines(channel)
        self.gone = False

    def load(self) -> dict[str, Any]:
        """What the answer defines; raises AnswerFailed when it could not be loaded."""
        hello = self.read()
        if "names" in hello and isinstance(hello["names"], dict):
            return {str(name): self.decode(value) for name, value in hello["names"].items()}
        raise AnswerFailed(str(hello.get("failed", "the answer could not be loaded"))[:SAID])

    def read(self) -> dict[str, Any]:
        try:
            reply = self.lines.read()
        except (EOFError, ConnectionError):
            self.gone = True
            raise AnswerFailed("the answer ended its process") from None
        except (ValueError, RecursionError) as error:
            self.gone = True
            raise AnswerFailed(f"the answer sent no reply: {error}") from None
        if not isinstance(reply, dict):
            raise AnswerFailed("the answer sent no reply")
        return reply

    def decode(self, data: Any) -> Any:
        def resolve(held: dict[str, Any]) -> Any:
            [(name, number)] = held.items()
            if name != "object" or type(number) is not int:
                raise ValueError(name)
            return Remote(self, number)

        try:
            return decode_value(data, resolve)
        except Exception as error:
            raise AnswerFailed(f"the answer sent what is no value: {type(error).__name__}") from None

    def ask(self, target: int, operation: str, arguments: tuple[Any, ...] = (), keywords: dict[str, Any] | None = None) -> Any:
        """Raises what the answer raised where that is an exception of Python's own, else AnswerFailed."""
        listed = [encode_value(item, refer_remote) for item in arguments]
        named = {name: encode_value(item, refer_remote) for name, item in (keywords or {}).items()}
        try:
            self.lines.send({"target": target, "operation": operation, "arguments": listed, "keywords": named})
        except OSError:
            self.gone = True
            raise AnswerFailed("the answer ended its process") from None
        reply = self.read()
        if "raised" in reply:
            kind, message = getattr(builtins, str(reply["raised"]), None), str(reply.get("message", ""))[:SAID]
            if isinstance(kind, type) and issubclass(kind, Exception) and not issubclass(kind, AssertionError | UnicodeError | ExceptionGroup):
                raise kind(message)
            raise AnswerFailed(str(reply.get("described", message))[:SAID])
        for place, item in dict(reply.get("changed") or {}).items():
            if str(place).isdecimal() and int(place) < len(arguments):
                change_in_place(arguments[int(place)], self.decode(item))
        return self.decode(reply.get("value"))


def change_in_place(given: Any, now: Any) -> None:
    if type(given) is not type(now):
        return
    if isinstance(given, list | bytearray):
        given[:] = now
    elif isinstance(given, dict | set):
        given.clear()
        given.update(now)


def refer_remote(value: Any) -> Any:
    if type(value) is Remote:
        return {"object": object.__getattribute__(value, "_number")}
    raise TypeError(f"a test cannot hand a {type(value).__name__} to the answer, only plain data and what came from the answer")


class Remote:
    """An object of the answer, from the tests' side. It has no ``__contains__``: ``in`` goes over its items and compares here."""

    __slots__ = ("_answer", "_number")

    def __init__(self, answer: Answer, number: int) -> None:
        self._answer, self._number = answer, number

    def __getattr__(self, name: str) -> Any:
        return self._answer.ask(self._number, "attribute", (name,))

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        return self._answer.ask(self._number, "call", arguments, keywords)

    def __getitem__(self, key: Any) -> Any:
        return self._answer.ask(self._number, "item", (key,))

    def __setitem__(self, key: Any, value: Any) -> None:
        self._answer.ask(self._number, "set_item", (key, value))

    def __iter__(self) -> Iterator[Any]:
        items = self._answer.ask(self._number, "iterate")
        while True:
            try:
                item = items._answer.ask(items._number, "next")
            except StopIteration:
                return
            yield item

    def __next__(self) -> Any:
        return self._answer.ask(self._number, "next")

    def __len__(self) -> int:
        return int(self._answer.ask(self._number, "length"))

    def __bool__(self) -> bool:
        return bool(self._answer.ask(self._number, "truth"))

    def __float__(self) -> float:
        return float(self._answer.ask(self._number, "float"))

    def __str__(self) -> str:
        return require_text(self._answer.ask(self._number, "text"))

    def __repr__(self) -> str:
        return require_text(self._answer.ask(self._number, "shown"))

    def __hash__(self) -> int:
        return self._number

    def refuse_comparison(self, other: object) -> bool:
        raise TypeError(
            "a test compared an object of the answer; only the answer could say what it equals: compare plain values (an attribute, str(), list())"
        )

    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = refuse_comparison


def require_text(value: Any) -> str:
    if type(value) is not str:
        raise AnswerFailed("the answer's text is none")
    return value


def add_arithmetic() -> None:
    for name in ARITHMETIC:

        def compute(self: Remote, *others: Any, name: str = name) -> Any:
            return self._answer.ask(self._number, name, others)

        setattr(Remote, f"__{name}__", compute)


add_arithmetic()


def run_answer_tests(request: dict[str, Any], frames: Frames, channel: int) -> None:
    """The tests' half. Reports the load, then each test; it ends early after a test that timed out or lost the answer: the rest gets new forks."""
    reporter, answer = Reporter(frames, request["limits"], keep_output=False), Answer(channel)
    namespace = make_module(TESTS)

    def load() -> None:
        wanted = request["names"]
        for name, value in answer.load().items():
            if name in MODULES:  # what an answer calls math may be anything
                namespace[name] = importlib.import_module(name)
            elif not hasattr(builtins, name) and (wanted is None or name in wanted):
                namespace[name] = value
        run_source(request["setup"], namespace, "<program: setup>")

    loaded = reporter.run_action(load)
    frames.report({"verdict": "pass" if loaded["outcome"] == "ok" else "error", "message": loaded["error"], "seconds": loaded["seconds"]})
    if loaded["outcome"] != "ok":
        return
    for test in request["tests"]:
        report = run_one_test(test, namespace, reporter)
        frames.report(report)
        if answer.gone or report["verdict"] == "timeout":
            return


def run_one_test(test: str, namespace: dict[str, Any], reporter: Reporter) -> dict[str, Any]:
    failed: list[str] = []

    def run() -> None:
        try:
            run_source(test, namespace)
        except (TimeIsUp, TooMuchOutput):
            raise
        except AssertionError as error:
            failed.append(describe_exception(error))
        except SystemExit as error:  # would count as a good end
            raise AnswerFailed(f"the test ended with {error!r}") from None

    report = reporter.run_action(run)
    verdict = "fail" if failed else {"ok": "pass", "timeout": "timeout"}.get(report["outcome"], "error")
    return {"verdict": verdict, "message": failed[0] if failed else report["error"], "seconds": report["seconds"]}
