"""Which file a run's spool is: with run folders that machines do not share, an attempt elsewhere goes on in a file of its own.

``Run.ingested`` is one growing number all the same: ``Run.spool_begin`` is what it is at the first byte of the present file, and ``Run.spool_token``
stands in that file's folder too, so that nobody takes the file of an earlier machine for it. A lab without a store has one file a run, which
begins at 0 and has no token.
"""

from __future__ import annotations

import os
from pathlib import Path
from uuid import uuid4

from lab.training.runs.models import Run
from trainers.contract.events import Metrics
from trainers.contract.spool import SPOOL, encoder

TOKEN_FILE = "spool-token"


def read_spool_token(folder: Path) -> str:
    try:
        return (folder / TOKEN_FILE).read_text().strip()
    except FileNotFoundError:
        return ""


def is_spool_here(run: Run) -> bool:
    """Whether the run folder of this machine holds the file that ``run.ingested`` counts; of several the one, with all that was read of it."""
    if read_spool_token(run.folder) != run.spool_token:
        return False
    return not run.spool_token or measure_spool(run) >= run.ingested - run.spool_begin


def measure_spool(run: Run) -> int:
    """Bytes of the file on this machine."""
    try:
        return (run.folder / SPOOL).stat().st_size
    except FileNotFoundError:
        return 0


def begin_spool_here(run: Run) -> bool:
    """Begins a file on this machine that the run goes on in; what an older one here held is gone. False when somebody else was faster.

    Its first line names the newest attempt and step, for the trainer, which counts on from there. Nobody ingests it: it lies before ``run.ingested``.
    Raises OSError and database errors; the run then has no file here, and the next call begins another.
    """
    folder, token = run.folder, uuid4().hex
    folder.mkdir(parents=True, exist_ok=True)
    (folder / TOKEN_FILE).unlink(missing_ok=True)
    known = encoder.encode(Metrics(attempt=run.attempt, time=0.0, step=run.step, values={})) + b"\n" if run.attempt else b""
    write_durably(folder / SPOOL, known)
    if not run.begin_spool(run.ingested - len(known), token):
        return False
    write_durably(folder / TOKEN_FILE, token.encode())
    return True


def keep_spool_here(run: Run) -> bool:
    """Gives the file that a run has here already a token. False when somebody else was faster."""
    token = uuid4().hex
    if not run.begin_spool(run.spool_begin, token):
        return False
    write_durably(run.folder / TOKEN_FILE, token.encode())
    return True


def write_durably(path: Path, content: bytes) -> None:
    """All of it or what was there before."""
    part = path.with_name(f".{path.name}.{os.getpid()}")
    with part.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)
