"""Processes that answer requests: kept for the next one, ended when none comes or an answer was not read."""

import sys
import threading

import pytest

from lab.lib import kept_process
from lab.lib.child_environment import SERVICE
from lab.lib.kept_process import Conversation, IdleProcess, KeptProcess, StartError
from lab.lib.processes import wait_for

ECHO = "import sys, os\nfor line in sys.stdin: print(os.getpid(), line.strip(), flush=True)"


def start_echo() -> KeptProcess:
    return KeptProcess([sys.executable, "-c", ECHO], SERVICE)


def ask(idle: IdleProcess, text: bytes, answered: bool = True) -> int:
    """The number of the process that has answered."""
    with Conversation(idle, 60) as echo:
        echo.ask(text)
        number, said = echo.read_line().split()
        assert said == text
        echo.answered = answered
        return int(number)


def test_who_asks_again_is_answered_by_the_same_process() -> None:
    idle = IdleProcess(start_echo)
    first = ask(idle, b"one")
    assert ask(idle, b"two") == first
    assert ask(idle, b"three", answered=False) == first
    assert idle.process is None
    second = ask(idle, b"four")
    assert second != first
    assert idle.process is not None
    idle.process.process.kill()
    idle.process.process.wait()
    assert ask(idle, b"five") not in (first, second)


def test_a_process_that_nobody_asks_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_process, "KEEP_SECONDS", 0.01)
    idle = IdleProcess(start_echo)
    kept = idle.take()
    idle.keep(kept)
    assert wait_for(lambda: idle.process is None and kept.process.poll() is not None, 30)


def test_a_process_that_another_thread_has_started_is_not_kept() -> None:
    """The kernel would end it with the thread, at any moment."""
    idle = IdleProcess(start_echo)
    thread = threading.Thread(target=ask, args=(idle, b"one"))
    thread.start()
    thread.join()
    assert idle.process is None


def test_an_answer_that_takes_too_long_ends_the_process() -> None:
    idle = IdleProcess(lambda: KeptProcess([sys.executable, "-c", "import time; time.sleep(60)"], SERVICE))
    with Conversation(idle, 0.2) as sleeper:
        sleeper.ask(b"anything")
        assert sleeper.read_line() == b""
        assert sleeper.is_late()
        assert sleeper.exit_code() == -9
    assert idle.process is None


def test_a_command_that_is_not_there_is_said() -> None:
    with pytest.raises(StartError, match="could not be started: No such file"), Conversation(IdleProcess(lambda: KeptProcess(["/none"], SERVICE)), 1):
        raise AssertionError("it has started")
