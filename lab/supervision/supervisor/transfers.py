"""A long transfer in a thread of its own, while its caller looks after the lease."""

from __future__ import annotations

import threading
from collections.abc import Callable

from django.db import connection

from lab.lib.artifact_store import Watch


class Transfer(threading.Thread):
    def __init__(self, act: Callable[[Watch], None], watch: Watch) -> None:
        super().__init__(name="transfer", daemon=True)
        self.act, self.watch = act, watch
        self.error: BaseException | None = None
        self.done = threading.Event()

    def run(self) -> None:
        try:
            self.act(self.watch)
        except BaseException as error:
            self.error = error
        finally:
            connection.close()
            self.done.set()


def run_beside(act: Callable[[Watch], None], watch: Watch, meanwhile: Callable[[], None], seconds: float) -> None:
    """Returns when ``act`` has ended; calls ``meanwhile`` every ``seconds`` until then. Raises what either raises: a transfer that is left so is
    cancelled first, and ended before this returns.
    """
    given_up = threading.Event()
    transfer = Transfer(act, Watch(lambda: given_up.is_set() or watch.is_cancelled(), watch.count))
    transfer.start()
    try:
        while not transfer.done.wait(seconds):
            meanwhile()
    except BaseException:
        given_up.set()
        transfer.join()
        raise
    if transfer.error is not None:
        raise transfer.error
