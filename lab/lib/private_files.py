"""Files that only their owner may read: logs and mails hold links that let people in."""

from __future__ import annotations

import os
from pathlib import Path
from typing import BinaryIO


def make_private_folder(folder: Path) -> None:
    """The folder with mode 0700, made with those above it when it is not there, closed when an earlier version left it open. Raises OSError."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.chmod(0o700)


def open_private_log(path: Path) -> BinaryIO:
    """The file to append to, with mode 0600 from its first byte on, also when an earlier version left it open. Raises OSError."""
    number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    os.fchmod(number, 0o600)
    return os.fdopen(number, "ab")
