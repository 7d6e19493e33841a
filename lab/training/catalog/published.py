"""Tasks and methods of other packages: a worker publishes what is installed beside it, web processes offer what any worker has published.

A process that never imports a package learns its tasks from the database. What several workers have is put together by name, the newest first:
a task that only some workers have is offered, and a run of it that reaches another worker is refused there by name, so give those workers a
queue of their own. What no worker has confirmed for a day is forgotten.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import subprocess
import sys
import threading
import time
from datetime import timedelta
from importlib.metadata import entry_points
from typing import Any

from django.conf import settings
from django.db.models.functions import Now

from lab.lib.child_environment import CATALOGUE, environment_for
from lab.training.catalog.models import PublishedCatalog

log = logging.getLogger(__name__)

GROUPS = ("policy_lab.tasks", "policy_lab.methods")  # entry points
PARTS = ("tasks", "methods")  # of a catalogue that packages add to
CONFIRM_SECONDS = 300.0
LOOK_SECONDS = 5.0
MAKING_SECONDS = 300  # a catalogue imports every package
FORGET_AFTER = timedelta(days=1)

Additions = dict[str, list[dict[str, Any]]]


class PublishingError(RuntimeError):
    """The catalogue with the installed packages could not be made."""


class CatalogPublisher:
    """What this worker has to add, made once and confirmed every few minutes."""

    def __init__(self) -> None:
        self.additions: Additions | None = None
        self.confirmed = float("-inf")

    def publish(self, name: str) -> None:
        """Raises PublishingError; the next call tries again."""
        if time.monotonic() - self.confirmed < CONFIRM_SECONDS:
            return
        if self.additions is None:
            self.additions = installed_additions()
        if any(self.additions.values()):
            text = json.dumps(self.additions, sort_keys=True)
            digest = hashlib.sha256(text.encode()).hexdigest()
            PublishedCatalog.objects.update_or_create(digest=digest, defaults={"additions": self.additions, "worker": name, "confirmed_at": Now()})
        PublishedCatalog.objects.filter(confirmed_at__lt=Now() - FORGET_AFTER).delete()
        self.confirmed = time.monotonic()


PUBLISHER = CatalogPublisher()


def publish_catalog() -> None:
    """A worker's chore: at its start, and then now and then."""
    PUBLISHER.publish(os.environ.get("LAB_WORKER", ""))


def installed_additions() -> Additions:
    """Tasks and methods of installed packages, described by ``python -m trainers catalog`` in a child. Raises PublishingError."""
    if not any(entry_points(group=group) for group in GROUPS):
        return {part: [] for part in PARTS}
    command = [sys.executable, "-m", "trainers", "catalog"]
    try:
        done = subprocess.run(command, cwd=settings.BASE, capture_output=True, timeout=MAKING_SECONDS, check=False, env=environment_for(CATALOGUE))
        additions = json.loads(done.stdout) if done.returncode == 0 else None
    except (OSError, subprocess.TimeoutExpired, ValueError) as error:
        raise PublishingError(f"the catalogue with the installed packages could not be made: {error}") from None
    if additions is None:
        last = done.stderr.decode(errors="replace").strip().splitlines()[-1:] or ["no output"]
        raise PublishingError(f"the catalogue with the installed packages could not be made: {last[0]}")
    built_in = json.loads((settings.BASE / "trainers" / "catalog.json").read_bytes())
    return {part: select_unknown_entries(built_in[part], additions[part]) for part in PARTS}


def select_unknown_entries(known: list[dict[str, Any]], entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The entries whose names are not known."""
    names = {entry["name"] for entry in known}
    return [entry for entry in entries if entry["name"] not in names]


class AdditionsReader:
    """What this process saw last in the database; looked up again after some seconds, by one thread at a time, and kept while it is away."""

    def __init__(self) -> None:
        self.seen: tuple[Additions, ...] = ()
        self.digests: tuple[str, ...] = ()
        self.again = 0.0
        self.lock = threading.Lock()

    def published(self) -> tuple[Additions, ...]:
        if time.monotonic() < self.again or not self.lock.acquire(blocking=False):
            return self.seen
        try:
            self.again = time.monotonic() + LOOK_SECONDS
            digests = tuple(PublishedCatalog.objects.order_by("-pk").values_list("digest", flat=True))
            if digests != self.digests:
                rows = PublishedCatalog.objects.filter(digest__in=digests).order_by("-pk")
                self.seen, self.digests = tuple(row.additions for row in rows), digests
        except Exception as error:  # no database, or none yet, or an event loop: the pages go on with what was known
            log.debug("published tasks and methods are not looked up now: %s", error)
        finally:
            self.lock.release()
        return self.seen


LOOK = AdditionsReader()


def fetch_published_additions() -> tuple[Additions, ...]:
    """What workers have published, the newest first. The same object as long as nothing changes. Never raises."""
    return LOOK.published()
