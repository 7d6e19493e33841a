"""How a running attempt speaks: every event stamped with its attempt and time, progress at a rate a reader can follow."""

import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal

from trainers.contract.events import AnyEvent, Metrics, Phase
from trainers.contract.spool import SpoolWriter, Work

QUIET_SECONDS = 1.0  # the same phase is not reported more often than this
HEARTBEAT_SECONDS = 2.0  # and, where nothing can be counted, not less often than this

NonFinite = Literal["nan", "inf", "-inf"]


def split_nonfinite(values: Mapping[str, float | None]) -> tuple[dict[str, float], dict[str, NonFinite]]:
    """What JSON has numbers for, and a name for the rest. TRL reports None where an average had no value: that is ``nan``."""
    finite: dict[str, float] = {}
    other: dict[str, NonFinite] = {}
    for name, value in values.items():
        if value is None or math.isnan(value):
            other[name] = "nan"
        elif math.isinf(value):
            other[name] = "inf" if value > 0 else "-inf"
        else:
            finite[name] = float(value)
    return finite, other


class Reporter:
    """Writes one attempt's events to its spool."""

    def __init__(self, writer: "SpoolWriter | Unheard", attempt: int) -> None:
        self.writer = writer
        self.attempt = attempt
        self.phase_name = ""
        self.phase_time = 0.0

    def stamp(self) -> dict[str, Any]:
        return {"attempt": self.attempt, "time": time.time()}

    def event(self, kind: Callable[..., AnyEvent], **fields: Any) -> None:
        self.writer.put(kind(**self.stamp(), **fields))

    def later(self, build: Callable[[], list[AnyEvent]]) -> None:
        """Lets the writer's thread build the events, so that a training step does not wait for it."""
        self.writer.put(build)

    def metrics(self, step: int, values: Mapping[str, float | None], tokens: int = 0) -> None:
        finite, other = split_nonfinite(values)
        self.event(Metrics, step=step, values=finite, nonfinite=other, tokens=tokens)

    def phase(self, name: str, done: int = 0, total: int = 0) -> None:
        """Reports what the trainer does now; the same phase at most once in ``QUIET_SECONDS``, its beginning and its end always."""
        now = time.monotonic()
        if name == self.phase_name and now - self.phase_time < QUIET_SECONDS and not 0 < total <= done:
            return
        self.phase_name, self.phase_time = name, now
        self.event(Phase, name=name, done=done, total=total)

    @contextmanager
    def busy(self, name: str) -> Iterator[None]:
        """Repeats the phase while something runs that cannot count its own progress (reading weights, tokenising)."""
        over = threading.Event()

        def beat() -> None:
            while not over.wait(HEARTBEAT_SECONDS):
                self.event(Phase, name=name)

        self.phase(name)
        thread = threading.Thread(target=beat, name="heartbeat", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()


class Unheard:
    """A writer that writes nothing."""

    def put(self, work: Work) -> None:
        return

    def sync(self) -> None:
        return

    def close(self) -> None:
        return


class SilentReporter(Reporter):
    """Of the processes of a run beside the first one, which speaks for all."""

    def __init__(self, attempt: int) -> None:
        super().__init__(Unheard(), attempt)

    @contextmanager
    def busy(self, name: str) -> Iterator[None]:
        yield
