"""Spools against the database: ``Run.ingested`` must never exceed a spool's length, or what is trained later is lost without a word.

A spool that is too short is mended by lines that no reader takes for events and a last one that names the attempt, so that the next attempt has a
number of its own: the rows that came from the lost lines are in the database, and every offset there stays true.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from django.conf import settings

from lab.edges.operations.manifests import Manifest, RunState
from lab.lib.refusals import Refusal
from trainers.contract.events import Warned
from trainers.contract.spool import SPOOL, encoder

NAMED = 5
BLANK = 1 << 16  # bytes of a line of spaces
BACK = 1 << 16  # bytes read at once from the end


@dataclass(frozen=True)
class ShortSpool:
    run: RunState
    length: int

    @property
    def path(self) -> Path:
        return Path(settings.RUNS_ROOT) / self.run.id / SPOOL


def find_short_spools(manifest: Manifest, *, in_backup: bool) -> list[ShortSpool]:
    """``in_backup``: by the lengths in the manifest; else by the files that are in the lab."""
    if in_backup:
        lengths = manifest.spool_bytes(SPOOL)
    else:
        lengths = {run.id: measure_file(Path(settings.RUNS_ROOT) / run.id / SPOOL) for run in manifest.runs}
    return [ShortSpool(run, lengths.get(run.id, 0)) for run in manifest.runs if lengths.get(run.id, 0) < run.ingested]


def measure_file(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def refuse_short_spools(short: list[ShortSpool]) -> None:
    """Raises Refusal."""
    words = [f"run {one.run.id} ({one.length} of {one.run.ingested} bytes)" for one in short[:NAMED]]
    more = f" and {len(short) - NAMED} more" if len(short) > NAMED else ""
    raise Refusal(
        f"{len(short)} spools are shorter than what the database holds of them: {', '.join(words)}{more}. What such a run trains next would be lost.",
        "Put the run folders there first (LAB_RUNS), or add --repair: the rows stay, the lost lines are replaced by blank ones.",
    )


def mend_short_spools(short: list[ShortSpool]) -> int:
    """Makes each as long as the database says; how many. Raises OSError."""
    mended = 0
    for one in short:
        if measure_file(one.path) < one.run.ingested:
            mend_spool(one.path, one.run)
            mended += 1
    return mended


def mend_spool(path: Path, run: RunState) -> None:
    """Whole lines stay as far as there is room after them for the line that names the attempt."""
    last = encoder.encode(Warned(attempt=run.attempt, time=0.0, step=run.step, message="The spool up to here was not in the backup.")) + b"\n"
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT, 0o600), "r+b") as file:
        end = find_line_end(file.fileno(), max(0, run.ingested - len(last)))
        file.truncate(end)
        file.seek(end)
        for piece in make_blank_lines(run.ingested - end - len(last)):
            file.write(piece)
        file.write(last if run.ingested - end >= len(last) else b" " * (run.ingested - end - 1) + b"\n")
        file.flush()
        os.fsync(file.fileno())


def make_blank_lines(count: int) -> Iterator[bytes]:
    while count > 0:
        size = min(count, BLANK)
        yield b" " * (size - 1) + b"\n"
        count -= size


def find_line_end(number: int, limit: int) -> int:
    """The end of the last whole line that ends at ``limit`` or before; 0 when there is none."""
    end = min(os.fstat(number).st_size, limit)
    while end:
        start = max(0, end - BACK)
        found = os.pread(number, end - start, start).rfind(b"\n")
        if found >= 0:
            return start + found + 1
        end = start
    return 0
