"""Sampling in a worker: the trainers' command, a process of its own, writes one side after the other, and this what it writes into the database."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import TracebackType
from typing import Any
from uuid import UUID

from django.conf import settings

from lab.lib.child_environment import SAMPLER, environment_for
from lab.lib.processes import die_with_parent, kill_tree
from lab.models.playground.models import SECONDS, Sample, Sampling, Side
from lab.models.policies.checkpoint_paths import folder_of
from lab.training.runs.publisher import publish_message
from trainers.contract import arrays

SHOWN_ERROR = 300
LINE = 16 << 20  # characters of a line of the command


class SamplingError(RuntimeError):
    """The command came to no end; the message is one readable line."""


def group_of(sampling_id: UUID) -> str:
    """The channel group that hears of a sampling."""
    return f"sampling-{sampling_id}"


def run_sampling(sampling_id: str) -> None:
    sampling = Sampling.across_teams.filter(pk=sampling_id).first()
    if sampling is None or not sampling.claim():
        return
    publish_sampling_update(sampling)
    try:
        with Sampler(time.monotonic() + SECONDS) as sampler:
            for side in sampling.sides.select_related("checkpoint"):
                if not write_side_samples(sampling, side, sampler):
                    return  # somebody stopped it
        sampling.finish()
    except SamplingError as error:
        sampling.fail(str(error))
    except Exception as error:  # nobody waits for ever for an answer that will not come
        sampling.fail(f"Sampling failed: {type(error).__name__}.")
        raise
    finally:
        publish_sampling_update(sampling)


def publish_sampling_update(sampling: Sampling) -> None:
    """Wakes the open pages; what there is to see is in the database."""
    publish_message(group_of(sampling.pk), {"type": "sampled"})


def write_side_samples(sampling: Sampling, side: Side, sampler: Sampler) -> bool:
    """Whether the side is written to its end; False when the sampling was stopped. Raises SamplingError."""
    for line in sampler.stream_answer(encode_sampling_request(sampling, side)):
        if not sampling.beats():
            return False
        if line["event"] == "loaded":
            Side.objects.same_row(side).update(special_tokens=line["special"], device=str(line["device"])[:50])
        elif line["event"] == "written":
            for number, completion in enumerate(line["completions"]):
                Sample.objects.update_or_create(side=side, number=number, defaults=pack_completion(completion))
        publish_sampling_update(sampling)
    return True


def encode_sampling_request(sampling: Sampling, side: Side) -> bytes:
    folder = folder_of(side.checkpoint) if side.checkpoint else None
    if folder is None:
        raise SamplingError(f"The files of {side.label} are no longer on disk.")
    names = ("prompt", "count", "temperature", "top_p", "max_tokens", "seed")
    return json.dumps({"folder": str(folder), **{name: getattr(sampling, name) for name in names}}).encode()


def pack_completion(completion: dict[str, Any]) -> dict[str, Any]:
    return {
        "text": completion["text"],
        "finish_reason": completion["finish_reason"],
        "tokens": len(completion["ids"]),
        "ids": arrays.pack_ids(completion["ids"]),
        "lengths": arrays.pack_array(completion["lengths"], "H"),
        "logprobs": arrays.pack_array(completion["logprobs"], "e"),
        "entropies": arrays.pack_array(completion["entropies"], "e"),
    }


class Sampler:
    """``python -m trainers sample``: one process for all sides, because it takes seconds to start. It ends with the ``with`` block."""

    def __init__(self, deadline: float) -> None:
        self.deadline = deadline  # of all answers together, on the monotonic clock

    def __enter__(self) -> Sampler:
        self.stack = ExitStack()
        self.process = self.stack.enter_context(start_sampler_process())
        self.stderr = PipeReader(self.process.stderr)
        late = threading.Timer(max(0.0, self.deadline - time.monotonic()), lambda: kill_tree(self.process.pid))
        late.start()
        self.stack.callback(late.cancel)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stack.close()

    def stream_answer(self, request: bytes) -> Iterator[dict[str, Any]]:
        """The lines of the answer to one request as they come, without the last, which says that it is whole. Raises SamplingError."""
        assert self.process.stdin
        assert self.process.stdout
        try:
            self.process.stdin.write(request + b"\n")
            self.process.stdin.flush()
            while text := self.process.stdout.readline(LINE):
                line = json.loads(text)
                if line["event"] == "done":
                    return
                yield line
            code = self.process.wait()
        except (OSError, ValueError) as error:
            raise SamplingError(f"Sampling was aborted: {self.stderr.last() or error}"[:SHOWN_ERROR]) from None
        if time.monotonic() >= self.deadline:
            raise SamplingError(f"Sampling timed out after {SECONDS:.0f} s. Request fewer or shorter completions.")
        raise SamplingError((self.stderr.last() or f"Sampling ended with exit code {code}.")[:SHOWN_ERROR])


@contextmanager
def start_sampler_process() -> Iterator[subprocess.Popen[bytes]]:
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    try:
        process = subprocess.Popen(
            [sys.executable, "-m", "trainers", "sample"],
            cwd=settings.BASE,
            env=environment_for(SAMPLER),
            preexec_fn=die_with_parent,
            start_new_session=True,
            **pipes,  # type: ignore[call-overload]
        )
    except OSError as error:
        raise SamplingError(f"Sampling could not be started: {error.strerror}.") from None
    try:
        yield process
    finally:
        if process.poll() is None:
            kill_tree(process.pid)
        process.wait()
        for pipe in (process.stdin, process.stdout, process.stderr):
            pipe.close()


class PipeReader:
    """Reads a pipe to its end on a thread and keeps its last lines, so that a chatty process never waits for us."""

    def __init__(self, pipe: Any) -> None:
        self.lines: list[str] = []
        self.thread = threading.Thread(target=self._read, args=(pipe,), daemon=True)
        self.thread.start()

    def _read(self, pipe: Any) -> None:
        for line in pipe:
            self.lines = [*self.lines[-19:], line.decode(errors="replace").strip()]

    def last(self) -> str:
        self.thread.join(2)
        return next((line for line in reversed(self.lines) if line), "")
