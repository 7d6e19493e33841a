"""What must hold after ``bench/soak.py``, whatever was done to the lab meanwhile."""

from __future__ import annotations

import re
import time
from collections import defaultdict
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import psutil

from bench.soak_lab import SoakLab
from bench.soak_load import Record

SLOW_SECONDS = 10.0  # for any page and what it asks for
SLOW_ACT_SECONDS = 20.0  # for an act by the API, which also tells the workers by Redis
FAULT_SHADOW = 15.0  # seconds after a fault in which a page may be refused with 503, or by nobody
TRAINER_GONE = ("was killed", "without saying why", "worker was lost", "No space left", "disk")  # reasons that the faults explain
SETTLE_SECONDS = 120.0  # of a process's life, before its memory is looked at
LEAST_LIFE = 300.0
GROWTH_MEMORY, GROWTH_FILES = 0.15, 12  # share of the memory at first, and open files, that a process may have gained by its end
GROWTH_BYTES = 24 << 20


@dataclass
class Usage:
    """Memory and open files of the lab's processes over time, by process."""

    samples: dict[tuple[int, float, str], list[tuple[float, int, int]]] = field(default_factory=lambda: defaultdict(list))

    def look(self, lab: SoakLab) -> None:
        for child in lab.children:
            try:
                process = psutil.Process(child.process.pid)
                for name, one in ((child.name, process), *((f"{child.name}'s child", below) for below in process.children())):
                    if "trainers" not in " ".join(one.cmdline()):
                        self.samples[one.pid, one.create_time(), name].append((time.time(), one.memory_info().rss, one.num_fds()))
            except psutil.Error:
                continue

    def find_growth(self) -> list[dict[str, Any]]:
        """Processes that lived long enough: what they had at first and at last (medians of a quarter each)."""
        found = []
        for (_, born, name), samples in self.samples.items():
            settled = [one for one in samples if one[0] - born > SETTLE_SECONDS]
            if len(settled) < 8 or settled[-1][0] - born < LEAST_LIFE:
                continue
            quarter = len(settled) // 4
            first, last = settled[:quarter], settled[-quarter:]
            memory, files = ([median(one[at] for one in part) for part in (first, last)] for at in (1, 2))
            flat = memory[1] - memory[0] <= max(GROWTH_BYTES, GROWTH_MEMORY * memory[0]) and files[1] - files[0] <= GROWTH_FILES
            figures = {"process": name, "seconds": round(settled[-1][0] - born), "mib": [round(one / 2**20) for one in memory]}
            found.append(figures | {"files": [round(one) for one in files], "flat": flat})
        return found


def check_runs(record: Record) -> list[str]:
    """Every event of every spool once in the database, every run finished."""
    from lab.training.runs.models import Run, Status
    from tests.lab.supervisor.spools import assert_database_equals_spool
    from trainers.contract.spool import SPOOL

    problems = []
    for run in Run.across_teams.filter(outside=False):
        size = (run.folder / SPOOL).stat().st_size
        if run.status != Status.FINISHED:
            problems.append(f"run #{run.number} is {run.status}: {run.reason}")
        if run.ingested != size:
            problems.append(f"run #{run.number}: {run.ingested} of {size} bytes are stored")
        try:
            assert_database_equals_spool(run)
        except AssertionError as error:
            problems.append(f"run #{run.number} is not what its spool says: {str(error)[:300]}")
    missing = set(record.launched) - {str(key) for key in Run.across_teams.values_list("pk", flat=True)}
    return [*problems, *(f"run {key} was confirmed and is gone" for key in missing)]


def check_store(seconds: float) -> list[str]:
    """The final policy of every run is in the object store, once the workers have had ``seconds`` for it."""
    from lab.training.runs.models import Checkpoint

    missing = Checkpoint.across_teams.filter(final=True, stored_at=None, run__outside=False)
    deadline = time.monotonic() + seconds
    while missing.exists() and time.monotonic() < deadline:
        time.sleep(1)
    return [f"the final policy of run {run} is not in the store" for run in missing.values_list("run", flat=True)]


def check_failures(record: Record) -> list[str]:
    """A run may fail only for what was done to it."""
    return [
        f"run {one.run} at {time.strftime('%H:%M:%S', time.localtime(one.at))}: {one.reason}; its log ends with {one.log!r}"
        for one in record.failures
        if one.reason.startswith("failed") and not any(words in one.reason for words in TRAINER_GONE)
    ]


def check_labels(record: Record) -> list[str]:
    from lab.labelling.labels.models import Judgement

    stored = dict(Judgement.across_teams.values_list("pk", "item"))
    lost = [key for key, (item, _) in record.labels.items() if stored.get(key) != item]
    extra = stored.keys() - record.labels.keys()
    problems = [f"label {key} was confirmed and is gone" for key in lost]
    return problems + ([f"{len(extra)} labels that nobody was told of"] if len(extra) > 1 else [])  # the last one may not have been confirmed


def check_answers(record: Record, faults: list[tuple[str, float, float]], patience: float) -> list[str]:
    """No page above 10 s (times ``patience``), and no act by the API above 20 s; where nothing was broken, none refused."""
    problems = [
        f"{one.path} took {one.seconds:.1f} s (status {one.status}) until {time.strftime('%H:%M:%S', time.localtime(one.at))}"
        for one in record.answers
        if one.seconds > (SLOW_ACT_SECONDS if one.is_act else SLOW_SECONDS) * patience
    ]
    for one in record.answers:
        shadowed = any(begin - one.seconds <= one.at <= end + FAULT_SHADOW * patience for _, begin, end in faults)
        if one.status == 500 or (one.status in (0, 502, 503, 504) and not shadowed):
            problems.append(f"{one.path} answered {one.status or 'nothing'} after {one.seconds:.1f} s")
    return problems


def find_slowest_by_page(record: Record) -> dict[str, float]:
    """Seconds of each page's slowest answer, ids left out, the slowest first."""
    slowest: dict[str, float] = {}
    for one in record.answers:
        page = re.sub(r"/([0-9a-f-]{36}|\d+)(?=/|$)", "/ID", one.path)
        slowest[page] = max(slowest.get(page, 0.0), round(one.seconds, 2))
    return dict(sorted(slowest.items(), key=lambda entry: -entry[1]))


def check_viewers(record: Record) -> list[str]:
    """What each viewer saw of a run that has finished, and what it should have seen.

    A point may be sent again, with the value it had: what PostgreSQL confirmed shortly before it was stopped hard it may have lost (batches are
    committed without waiting for the disk), and pages have it already when it is read from the spool once more.
    """
    return [
        f"a viewer of run {run} has {gaps} gaps and {doubles} doubles; {viewer.describe()}"
        for run, viewer, (gaps, doubles) in record.viewers
        if gaps or doubles
    ]


def find_orphans(lab: SoakLab, seconds: float) -> list[str]:
    """Processes of the lab that are there after it has been stopped."""
    deadline = time.monotonic() + seconds
    while (left := lab.list_processes()) and time.monotonic() < deadline:
        time.sleep(0.5)
    words = []
    for process in left:
        try:
            words.append(f"process {process.pid} was left: {' '.join(process.cmdline())[:200]}")
        except psutil.Error:
            continue
    return words
