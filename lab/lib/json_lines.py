"""Lines of JSON appended to a file that somebody else reads while it grows."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any


def append_json_lines(path: Path, lines: Sequence[dict[str, Any]]) -> None:
    """All lines in one write, each whole, also behind a line that somebody left unfinished."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        size = os.fstat(handle).st_size
        torn = size > 0 and os.pread(handle, 1, size - 1) != b"\n"
        os.write(handle, b"\n" * torn + b"".join(json.dumps(line).encode() + b"\n" for line in lines))
    finally:
        os.close(handle)
