"""What ``bench/soak.py`` does to its lab: each fault breaks something and, after a while, mends it."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil

from bench.soak_lab import WORKERS, SoakLab

BALLAST = "ballast"
KEEP_FREE = 64 << 10  # bytes that stay free on the full disk, so that a directory entry still fits


class NothingToBreak(Exception):
    """What the fault is for is not there now: no trainer runs, for one."""


Fault = Callable[[SoakLab, random.Random, float], None]


def find_trainers(lab: SoakLab) -> list[psutil.Process]:
    """Processes that train: leaders of a session of their own whose words name a run's folder."""
    return [one for one in lab.list_processes() if "trainers" in " ".join(one.cmdline()[:4]) and os.getsid(one.pid) == one.pid]


def kill(lab: SoakLab, process: psutil.Process) -> None:
    lab.killed.append(process.pid)
    process.kill()


def kill_trainer(lab: SoakLab, rng: random.Random, seconds: float) -> None:
    trainers = find_trainers(lab)
    if not trainers:
        raise NothingToBreak
    kill(lab, rng.choice(trainers))


def kill_rank(lab: SoakLab, rng: random.Random, seconds: float) -> None:
    """One of the processes that train a run together."""
    ranks = [one for one in lab.list_processes() if one.cmdline()[1:4] == ["-m", "trainers", "rank"]]
    if not ranks:
        raise NothingToBreak
    kill(lab, rng.choice(ranks))


def kill_supervisor(lab: SoakLab, rng: random.Random, seconds: float) -> None:
    """The worker's forked child, which supervises; the worker goes on with another, the trainer goes on alone and is adopted."""
    worker = lab.find_child(rng.choice(WORKERS))
    forked = [child for child in worker.children() if "trainers" not in " ".join(child.cmdline())] if worker else []
    if not forked:
        raise NothingToBreak
    kill(lab, rng.choice(forked))


def kill_worker(lab: SoakLab, rng: random.Random, seconds: float) -> None:
    worker = lab.find_child(rng.choice(WORKERS))
    if worker is None:
        raise NothingToBreak
    kill(lab, worker)
    time.sleep(seconds)
    lab.revive()


def kill_web(lab: SoakLab, rng: random.Random, seconds: float) -> None:
    web = lab.find_child("web")
    if web is None:
        raise NothingToBreak
    kill(lab, web)
    time.sleep(seconds)
    lab.revive()


def stop_postgres(lab: SoakLab, rng: random.Random, seconds: float) -> None:
    lab.postgres.stop_hard()
    time.sleep(seconds)
    lab.postgres.start()


def stop_redis(lab: SoakLab, rng: random.Random, seconds: float) -> None:
    lab.redis.stop_hard()
    time.sleep(seconds)
    lab.redis.start()


def cut_network(lab: SoakLab, rng: random.Random, seconds: float) -> None:
    for proxy in (lab.database_proxy, lab.redis_proxy):
        proxy.cut()
    time.sleep(seconds)
    for proxy in (lab.database_proxy, lab.redis_proxy):
        proxy.heal()


def slow_network(lab: SoakLab, rng: random.Random, seconds: float) -> None:
    for proxy in (lab.database_proxy, lab.redis_proxy):
        proxy.delay = 0.5
    time.sleep(seconds)
    for proxy in (lab.database_proxy, lab.redis_proxy):
        proxy.heal()


def cut_store(lab: SoakLab, rng: random.Random, seconds: float) -> None:
    """The object store is away: runs go on, and what they have saved is uploaded later."""
    if lab.store_proxy is None:
        raise NothingToBreak
    lab.store_proxy.cut()
    time.sleep(seconds)
    lab.store_proxy.heal()


def fill_disk(lab: SoakLab, rng: random.Random, seconds: float) -> None:
    """Of the run folders, which are a file system of their own; what they hold stays."""
    if not os.path.ismount(lab.runs):
        raise NothingToBreak
    ballast = lab.runs / BALLAST
    with ballast.open("wb") as file:
        for _ in range(20):  # the lab writes meanwhile
            with suppress(OSError):
                os.posix_fallocate(file.fileno(), 0, max(1, shutil.disk_usage(lab.runs).free - KEEP_FREE))
                break
    time.sleep(seconds)
    ballast.unlink()


def take_connections(lab: SoakLab, rng: random.Random, seconds: float) -> None:
    """All of PostgreSQL's that the lab may have, for as long."""
    import psycopg

    taken: list[Any] = []
    until = time.monotonic() + seconds
    try:
        while time.monotonic() < until:
            with suppress(psycopg.OperationalError):
                taken.append(psycopg.connect(lab.postgres.url(lab.postgres.port), connect_timeout=2))
                continue
            time.sleep(0.2)
    finally:
        for connection in taken:
            connection.close()


def move_clock(lab: SoakLab, rng: random.Random, seconds: float) -> None:
    """The second worker's machine is a minute ahead, and its trainer with it."""
    lab.clock.write_text("60")
    time.sleep(seconds)
    lab.clock.write_text("0")


WORST: dict[str, Fault] = {
    "trainer killed": kill_trainer,
    "PostgreSQL stopped hard": stop_postgres,
    "supervisor killed": kill_supervisor,
    "Redis stopped hard": stop_redis,
    "worker killed": kill_worker,
    "web process killed": kill_web,
}
FAULTS: dict[str, Fault] = {
    **WORST,
    "rank killed": kill_rank,
    "object store away": cut_store,
    "network cut": cut_network,
    "network 500 ms slow": slow_network,
    "disk full": fill_disk,
    "connections taken": take_connections,
    "a worker's clock 60 s ahead": move_clock,
}


@contextmanager
def own_file_system(folder: Path, megabytes: int) -> Iterator[bool]:
    """The folder as a file system of its own; False where this process may not mount one."""
    command = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m,mode=755", "policy-lab-soak", str(folder)]
    mounted = subprocess.run(command, capture_output=True, check=False).returncode == 0
    try:
        yield mounted
    finally:
        if mounted:
            subprocess.run(["umount", "-l", str(folder)], check=False)
