"""What `python -m trainers sample` reads and writes: requests on standard input, a line of JSON each, answered one after the other in JSON lines.

Three kinds by their field ``ask``: none is a sampling of the playground (``playground.SamplingRequest``), ``alternatives`` and ``branch`` are about a
token of a stored completion (``branching``). Every answer ends in ``{"event": "done"}``; ``{"event": "alive"}`` may stand anywhere before it.
"""

from __future__ import annotations

import gc
import json
import sys
import threading
from collections.abc import Iterable
from contextlib import redirect_stdout
from typing import Any

import msgspec
import torch

from trainers.contract.problems import Problem, SpecError
from trainers.policies.branching import run_branch_request
from trainers.policies.playground import SamplingSession, parse_sampling_request

ALIVE_SECONDS = 5.0  # a large policy takes longer to load than whoever waits believes in a silent process


class Asked(msgspec.Struct):
    """The part of a request that says of which kind it is."""

    ask: str = ""


class LineWriter:
    """Writes lines of JSON to ``out``, and while it is used as a context a heartbeat every ALIVE_SECONDS."""

    def __init__(self, out: Any) -> None:
        self.out, self.lock, self.over = out, threading.Lock(), threading.Event()

    def say(self, line: dict[str, Any]) -> None:
        with self.lock:
            self.out.write(json.dumps(line, allow_nan=False) + "\n")
            self.out.flush()

    def __enter__(self) -> LineWriter:
        self.over.clear()
        self.thread = threading.Thread(target=self._live, daemon=True)
        self.thread.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self.over.set()
        self.thread.join()

    def _live(self) -> None:
        while not self.over.wait(ALIVE_SECONDS):
            self.say({"event": "alive"})


def answer_sampling_requests(requests: Iterable[bytes]) -> None:
    """Answers one request after the other, each with a policy loaded for it alone. Raises SpecError.

    Reward functions of other packages may print: what they say goes to standard error, so that it is no line of the answer.
    """
    writer = LineWriter(sys.stdout)
    with redirect_stdout(sys.stderr):
        for text in requests:
            with writer:
                answer_sampling_request(text, writer)
            writer.say({"event": "done"})
            gc.collect()  # a session and its watcher hold each other: the next policy must not be loaded beside this one
            torch.cuda.empty_cache()  # nothing without CUDA; the process is kept for a while, and others need the memory


def answer_sampling_request(text: bytes, writer: LineWriter) -> None:
    """All but the last line of the answer. Raises SpecError."""
    try:
        kind = msgspec.json.decode(text, type=Asked).ask
    except msgspec.DecodeError as error:
        raise SpecError([Problem("request", "", str(error))]) from None
    if kind:
        run_branch_request(text, writer.say)
    else:
        SamplingSession(parse_sampling_request(text), writer.say).run()
