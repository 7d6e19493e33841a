"""The threads of a worker are woken by signal handlers, one of which may interrupt another."""

import threading
import time

from lab.training.workers.heartbeat import RepeatingThread


def test_a_signal_that_interrupts_another_does_not_wait_for_it() -> None:
    """Of two SIGTERM at once the second comes while the handler of the first holds the lock; in a thread, so that waiting for ever is a failure."""
    repeating, returned = RepeatingThread("of tests", 60, {}), threading.Event()

    def interrupt() -> None:
        with repeating.woken:
            repeating.now()
        returned.set()

    threading.Thread(target=interrupt, daemon=True).start()
    assert returned.wait(10)


def test_it_works_at_once_when_it_is_woken_and_ends_when_told() -> None:
    calls: list[float] = []
    called = threading.Semaphore(0)

    def work() -> None:
        calls.append(time.monotonic())
        called.release()

    repeating = RepeatingThread("of tests", 600, {"the work": work})
    repeating.now()  # before it runs: its first pause is none
    repeating.start()
    assert called.acquire(timeout=30)
    assert called.acquire(timeout=30)
    repeating.now()
    assert called.acquire(timeout=30)
    repeating.end()
    repeating.join(30)
    assert not repeating.is_alive()
    assert len(calls) <= 4
