"""Calls in a child process: what goes beyond a limit ends with the child and is told in words, and the child knows no secrets."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import psutil
import pytest
from django.db import connection

from lab.lib import bounded_process
from lab.lib.bounded_process import (
    BoundedError,
    CallSlots,
    ChildFailed,
    ProcessLimits,
    TooLarge,
    TooManyChildren,
    TooMuchMemory,
    TooSlow,
    call_in_child,
)
from lab.lib.child_environment import DECODER

HERE = "tests.lab.test_bounded_process"
SMALL = ProcessLimits(seconds=10, cpu_seconds=1, memory=256 << 20, result=1 << 20)


def squares(most: int) -> Iterator[int]:
    yield from (number**2 for number in range(most))


def length(data: bytes, unit: int) -> Iterator[int]:
    yield len(data) // unit


def spin() -> Iterator[int]:
    while True:
        pass
    yield 0


def sleep_with_a_child() -> Iterator[int]:
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(86399)"])
    time.sleep(60)
    yield 0


def eat() -> Iterator[int]:
    kept = []
    while True:
        kept.append(bytes(1 << 24))
    yield 0


def write_much() -> Iterator[str]:
    while True:
        yield "1" * 1000


def tell_environment() -> Iterator[dict[str, str]]:
    yield dict(os.environ)


def tell_environment_of_preflight(data: bytes, policy_pending: bool, model: None, machine: None) -> Iterator[dict[str, str]]:
    return tell_environment()


def crash() -> Iterator[int]:
    os.abort()
    yield 0


def fail() -> Iterator[int]:
    raise ValueError("not as it should be")
    yield 0


def test_values_come_back_one_by_one_and_data_goes_along() -> None:
    assert list(call_in_child(f"{HERE}:squares", "a", SMALL, most=4)) == [0, 1, 4, 9]
    assert list(call_in_child(f"{HERE}:length", "a", SMALL, b"x" * 3_000_000, unit=3)) == [1_000_000]


@pytest.mark.parametrize(
    ("name", "limits", "kind", "words"),
    [
        ("spin", SMALL, TooSlow, "longer than 1 s"),
        ("eat", SMALL, TooMuchMemory, "more than 256 MiB of memory"),
        ("write_much", SMALL, TooLarge, "more than 1 MiB"),
        ("crash", SMALL, ChildFailed, "could not be read"),
        ("fail", SMALL, ChildFailed, "could not be read"),
    ],
)
def test_whatever_a_child_does_it_ends_and_the_next_call_works(name: str, limits: ProcessLimits, kind: type[BoundedError], words: str) -> None:
    with pytest.raises(kind, match=words) as refused:
        list(call_in_child(f"{HERE}:{name}", "a", limits))
    assert refused.value.fix
    assert list(call_in_child(f"{HERE}:squares", "a", SMALL, most=2)) == [0, 1]


def test_a_child_that_is_late_is_killed_with_what_it_started() -> None:
    with pytest.raises(TooSlow, match="longer than 2 s"):
        list(call_in_child(f"{HERE}:sleep_with_a_child", "a", ProcessLimits(seconds=2)))
    own = psutil.Process()
    assert not [one for one in own.children(recursive=True) if one.status() != psutil.STATUS_ZOMBIE and "86399" in " ".join(one.cmdline())]


def test_a_child_knows_nothing_of_the_labs_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_API_KEY", "secret-of-somebody")
    children = bounded_process.ForkedChildren(bounded_process.ForkServer(DECODER), CallSlots(1, 1))
    [found] = children.call(f"{HERE}:tell_environment", "a", SMALL)
    assert not {"SECRET_KEY", "DATABASE_URL", "REDIS_URL", "WANDB_API_KEY"} & set(found)
    children.server.end()


def test_a_server_that_was_killed_is_started_again() -> None:
    list(call_in_child(f"{HERE}:squares", "a", SMALL, most=1))
    process = bounded_process.decoders.server.process
    assert process is not None
    process.kill()
    process.wait()
    assert list(call_in_child(f"{HERE}:squares", "a", SMALL, most=2)) == [0, 1]


def test_one_owner_gets_a_share_of_the_children_and_whoever_waits_too_long_is_told() -> None:
    places = CallSlots(at_once=3, of_one=2)
    with places.taken("a", 0), places.taken("a", 0):
        with pytest.raises(TooManyChildren, match="too many files"), places.taken("a", 0.01):
            pass
        with places.taken("b", 0), pytest.raises(TooManyChildren), places.taken("c", 0.01):
            pass
        with places.taken("c", 0):
            pass
    assert not places.owners


@pytest.mark.django_db(transaction=True)
def test_no_database_connection_is_held_while_a_child_works(monkeypatch: pytest.MonkeyPatch) -> None:
    connection.ensure_connection()
    seen: list[Any] = []
    ask = bounded_process.decoders.server.ask
    monkeypatch.setattr(bounded_process.decoders.server, "ask", lambda *given: (seen.append(connection.connection), ask(*given))[1])
    list(call_in_child(f"{HERE}:squares", "a", SMALL, most=1))
    assert seen == [None]


def test_calls_at_the_same_time_each_get_their_own_answer() -> None:
    found: dict[int, list[Any]] = {}

    def ask(number: int) -> None:
        found[number] = list(call_in_child(f"{HERE}:squares", f"{number}", SMALL, most=number))

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {number: [one**2 for one in range(number)] for number in range(12)}
