"""An attempt's log file, shipped to the database piece by piece, exactly once like the spool."""

from __future__ import annotations

import re
from pathlib import Path

from django.db import transaction

from lab.lib.redaction import redact_secrets
from lab.training.runs.models import LogChunk, Run

PIECE = 128 << 10  # bytes in one row
MAX_BYTES = 32 << 20  # of one attempt's log go to the database; the rest stays in the file
NUL = "\u2400"
ESCAPES = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b[@-_]|[\x00-\x08\x0b-\x1f\x7f]")
FRAME = re.compile(r'^(Traceback \(most recent call last\):|\s+File "|\s|[\^~]+$|During handling|The above exception)')


def log_file(folder: Path, attempt: int) -> Path:
    return folder / f"attempt-{attempt}.log"


def ship_log_piece(run: Run, attempt: int, final: bool = False) -> bool:
    """Stores the next piece of an attempt's log, which is the one ``run.log_ingested`` counts.

    A piece ends with a line, unless it is ``final`` or the line is long. Returns whether anything was stored.
    Bytes that are no UTF-8 show as U+FFFD, NUL as U+2400, secrets as [secret].
    """
    path = log_file(run.folder, attempt)
    data = read_piece(path, run.log_ingested)
    if not final or len(data) == PIECE:
        data = data[: data.rfind(b"\n") + 1] or (data if len(data) == PIECE else b"")
    if not data or run.log_ingested >= MAX_BYTES:
        return False
    since, until = run.log_ingested, run.log_ingested + len(data)
    text = redact_secrets(data.decode(errors="replace").replace("\0", NUL))
    if until >= MAX_BYTES:
        text += f"\n… the log is longer than {MAX_BYTES >> 20} MiB; the rest is in {path.name} of the run's folder\n"
    with transaction.atomic():
        if not Run.objects.same_row(run).filter(log_ingested=since).update(log_ingested=until):
            stored = False
        else:
            LogChunk.objects.create(run=run, attempt=attempt, offset=since, text=text)
            stored = True
    if stored:
        run.log_ingested = until
    else:
        run.refresh_from_db()
    return stored


def read_piece(path: Path, offset: int) -> bytes:
    try:
        with path.open("rb") as file:
            file.seek(offset)
            return file.read(PIECE)
    except FileNotFoundError:
        return b""


def last_words(path: Path, count: int = 1) -> str:
    """The last lines of a log that say something: no blank lines, traceback frames or control characters."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - (32 << 10)))
            text = file.read().decode(errors="replace")
    except FileNotFoundError:
        return ""
    lines = [ESCAPES.sub("", line.rsplit("\r", 1)[-1]) for line in text.replace("\r\n", "\n").split("\n")]
    meaningful = [line.strip()[:500] for line in lines if line.strip() and not FRAME.match(line)]
    return redact_secrets("\n".join(meaningful[-count:]))
