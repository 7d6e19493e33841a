"""The head of the chain, kept outside of the database: without it nobody could tell that the newest entries were cut off.

``LAB_HOME/audit-head``, mode 0600, one line ``<number>:<digest>``. Whoever can write the database and this file can still cheat: copy the head
to where they cannot write.
"""

from __future__ import annotations

import logging
import os
import time
from pathlib import Path

from django.conf import settings

from lab.teams.audit.chain import START, Head, read_head
from lab.teams.audit.models import ChainLink

log = logging.getLogger(__name__)

EVERY = 60.0  # seconds between two writings, at the least

_next = 0.0


def get_anchor_path() -> Path:
    return Path(settings.HOME) / "audit-head"


def read_anchor() -> Head | None:
    """None when there is none yet. Raises ValueError when the file holds something else, OSError."""
    try:
        return Head.read(get_anchor_path().read_text(encoding="ascii", errors="replace"))
    except FileNotFoundError:
        return None


def keep_anchor() -> None:
    """Writes the present head down, now and then. A head that was kept and is no longer in the chain stays, and the log says so."""
    global _next
    if time.monotonic() < _next:
        return
    _next = time.monotonic() + EVERY
    try:
        kept, head = read_anchor(), read_head()
        if kept is not None and not is_in_chain(kept):
            log.error("the audit log is not what it was: link %s is gone or another; see manage.py verify-audit", kept.number)
        elif kept != head:
            write_anchor(head)
    except (OSError, ValueError) as error:
        log.error("the head of the audit log could not be kept in %s: %s", get_anchor_path(), error)


def is_in_chain(head: Head) -> bool:
    """Whether the chain still holds this link."""
    if not head.number:
        return head.digest == START
    digest = ChainLink.objects.filter(number=head.number).values_list("digest", flat=True).first()
    return digest is not None and bytes(digest) == head.digest


def write_anchor(head: Head) -> None:
    part = get_anchor_path().with_name(f"audit-head.{os.getpid()}")
    part.parent.mkdir(parents=True, exist_ok=True)
    with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(f"{head}\n")
    os.replace(part, get_anchor_path())
