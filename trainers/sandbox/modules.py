"""The modules that programs can import: loaded before any fork, because afterwards there are no files. The list is ``results.MODULES``.

The list is what programs are offered, not what holds them: a program that finds its way to ``os`` finds that the kernel refuses what it asks.
"""

from __future__ import annotations

import builtins
import importlib
import io
import sys
import types
from collections.abc import Callable
from typing import Any

from trainers.sandbox.results import MODULES

PROGRAM, FUNCTIONS, ANSWER, TESTS = "__main__", "functions", "answer", "tests"  # names of the modules that programs become
real_import: Callable[..., Any] = builtins.__import__
real_open: Callable[..., Any] = builtins.open


def load_modules() -> None:
    for name in (
        *MODULES,
        "collections.abc",
        "encodings.idna",
        "html.parser",
        "encodings.ascii",
        "encodings.latin_1",
        "encodings.utf_16",
        "_strptime",
    ):
        importlib.import_module(name)


def import_offered(name: str, globals: Any = None, locals: Any = None, fromlist: Any = (), level: int = 0) -> Any:
    """What ``import`` does in a program. Modules of the list import each other as always."""
    own = type(globals) is dict and globals.get("__name__") in (PROGRAM, FUNCTIONS, ANSWER, TESTS)
    if own and name != "_strptime" and (level or name.split(".")[0] not in MODULES or name not in sys.modules):  # datetime's C code imports that
        raise ModuleNotFoundError(f"no module {name!r} in the sandbox; programs can import {', '.join(sorted(MODULES)[1:])}", name=name)
    return real_import(name, globals, locals, fromlist, level)


def open_input(file: Any, *arguments: Any, **keywords: Any) -> Any:
    """``open(0)`` is a way to read the input that programs in contests like; there is no other file."""
    if type(file) is int and file == 0:
        return sys.stdin
    raise PermissionError(f"no files in the sandbox: open({file!r:.80})")


def offer_modules() -> None:
    """In a fork, before its program runs."""
    builtins.__import__ = import_offered
    builtins.open = io.open = open_input
    builtins.exit = builtins.quit = sys.exit  # type: ignore[assignment]  # what the module site brings
    sys.path.clear()
    sys.argv = ["program"]


def make_module(name: str) -> dict[str, Any]:
    """The namespace of a module that others find by its name, as dataclasses and enumerations do."""
    module = types.ModuleType(name)
    sys.modules[name] = module
    return module.__dict__


def run_source(source: str, namespace: dict[str, Any], file: str = "<program>") -> None:
    exec(compile(source, file, "exec", dont_inherit=True), namespace)
