"""``send --from``: other frameworks' files into a lab, once or as they grow."""

from __future__ import annotations

import hashlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from trainers.outside.client import LabClient, LabError
from trainers.outside.readers.base import ReaderOptions, RunReader, SourceError, SourceFormat, SourceOpening
from trainers.outside.readers.formats import find_format
from trainers.outside.sending import PATIENCE, Sender, ensure_run_opening
from trainers.outside.source_arguments import SourceRequest
from trainers.outside.source_spool import SourceSpool, name_source, read_position

LOOK_SECONDS = 0.5  # between two looks at a source that is followed
ALIVE_SECONDS = 60.0  # between two signs of life while nothing comes
FINE, UNREACHABLE, REFUSED = 0, 1, 2


def say_on_stderr(words: str) -> None:
    print(words, file=sys.stderr, flush=True)


def send_sources(request: SourceRequest, client: LabClient, say: Callable[[str], None] = say_on_stderr, over: threading.Event | None = None) -> int:
    """Sends what is new in the sources, and with ``follow`` goes on until a signal, ``over`` or the source's own end. Returns the exit code."""
    try:
        formats = [(find_format(name, path), path.resolve()) for name, path in request.sources]
        folder = request.keep or choose_keeping_folder(formats)
        position = read_position(folder)
        readers = [open_source(one, path, position, request.options) for one, path in formats]
        opening = build_opening(request, formats, readers)
        ensure_run_opening(folder, opening)
        measured = any(reader.brings_metrics for reader in readers)
        spool = SourceSpool(folder, position, readers, opening["total_steps"], measured)
    except SourceError as error:
        say(str(error))
        return REFUSED
    say(f"reading {', '.join(f'{path} ({one.name})' for one, path in formats)}; kept in {folder}")
    try:
        return (
            follow_sources(request, client, spool, say, over or threading.Event())
            if request.follow
            else send_sources_once(request, client, spool, say)
        )
    except SourceError as error:
        say(str(error))
        return REFUSED
    except LabError as error:
        say(f"{error}. What was read is kept in {folder}")
        return UNREACHABLE if error.temporary else REFUSED
    finally:
        spool.close()


def open_source(one: SourceFormat, path: Path, position: dict[str, Any], options: ReaderOptions) -> RunReader:
    """Raises SourceError."""
    reader = one.open(path, position["sources"].get(name_source(one.name, path), {}), options)
    reader.format = one.name
    return reader


def choose_keeping_folder(formats: Sequence[tuple[SourceFormat, Path]]) -> Path:
    """The same for the same sources, so that the command goes on with the run it began. Not beside the source, which may not be ours to write."""
    home = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
    told = "\n".join(f"{one.name} {path}" for one, path in formats)
    return home / "policy-lab" / f"{formats[0][1].name or 'run'}-{hashlib.sha256(told.encode()).hexdigest()[:12]}"


def build_opening(request: SourceRequest, formats: Sequence[tuple[SourceFormat, Path]], readers: Sequence[RunReader]) -> dict[str, Any]:
    """What the sources say of the run; of two that say the same thing differently the first counts."""
    both = SourceOpening()
    for one in reversed([reader.describe_opening() for reader in readers]):
        told = {name.name: getattr(one, name.name) or getattr(both, name.name) for name in fields(SourceOpening)}
        both = SourceOpening(**{**told, "config": both.config | one.config})
    kinds = [reader.trainer for reader in readers if reader.trainer != "other"]
    first, path = formats[0]
    return {
        "name": (request.name or both.name or f"{path.name or first.name} ({first.name})")[:100],
        "trainer": request.trainer or (kinds[0] if kinds else "other"),
        "policy": both.policy[:200],
        "task": both.task[:100],
        "total_steps": both.total_steps,
        "config": both.config,
    }


def send_sources_once(request: SourceRequest, client: LabClient, spool: SourceSpool, say: Callable[[str], None]) -> int:
    spool.take_new(final=True)
    spool.finish(spool.find_outcome() or "finished")
    sender = Sender(client, spool.folder)
    if not sender.finish(request.wait):
        say("not everything is in the lab yet; run the command again later")
        return UNREACHABLE
    print(f"{client.url}{sender.page}: {sender.offset} bytes")
    return FINE


def follow_sources(request: SourceRequest, client: LabClient, spool: SourceSpool, say: Callable[[str], None], over: threading.Event) -> int:
    """Looks, sends and waits, until Ctrl-C, SIGTERM or the source's end. A lab that is away is waited for; reading goes on meanwhile."""
    before = {one: signal.signal(one, lambda *_: over.set()) for one in (signal.SIGINT, signal.SIGTERM)} if is_main_thread() else {}
    try:
        return FollowLoop(client, spool, say, over).run(request.wait)
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)


def is_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


class FollowLoop:
    """``over`` ends it: the run is then sent to its end as "stopped", and taken up again by the next ``send``."""

    def __init__(self, client: LabClient, spool: SourceSpool, say: Callable[[str], None], over: threading.Event) -> None:
        self.sender, self.spool, self.say, self.over = Sender(client, spool.folder), spool, say, over
        self.tries, self.try_at, self.heard_at = 0, 0.0, time.monotonic()
        self.told_page = self.told_stop = False

    def run(self, wait: float) -> int:
        outcome = None
        while outcome is None and not self.over.is_set():
            self.spool.take_new(final=False)
            outcome = self.spool.find_outcome()
            self.send_what_is_read()
            if outcome is None:
                self.over.wait(LOOK_SECONDS)
        self.spool.take_new(final=True)
        self.spool.finish(outcome or "stopped")
        if not self.sender.finish(wait):
            self.say("not everything is in the lab yet; run the command again later")
            return UNREACHABLE
        return FINE

    def send_what_is_read(self) -> None:
        """Raises LabError for what no waiting mends."""
        now = time.monotonic()
        if now < self.try_at:
            return
        try:
            while self.sender.step():
                self.heard_at = now
                if self.over.is_set():
                    return
            if now - self.heard_at > ALIVE_SECONDS:
                self.sender.tell_alive()
                self.heard_at = now
        except LabError as error:
            if not error.temporary:
                raise
            pause = max(error.wait, PATIENCE[min(self.tries, len(PATIENCE) - 1)])
            if self.tries == 0:
                self.say(f"{error}; reading goes on, and what is read is sent later")
            self.tries, self.try_at = self.tries + 1, now + pause
            return
        self.tries = 0
        self.tell_news()

    def tell_news(self) -> None:
        if self.sender.page and not self.told_page:
            self.told_page = True
            self.say(f"following; the run's page: {self.sender.client.url}{self.sender.page}")
        if self.sender.stop_asked and not self.told_stop:
            self.told_stop = True
            self.say("somebody asked in the lab for this run to stop: end the training where it runs")
