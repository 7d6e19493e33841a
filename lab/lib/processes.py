"""Child processes of a command: started with their own log, ended together, never left behind."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil

from lab.lib.private_files import make_private_folder, open_private_log

PR_SET_PDEATHSIG = 1
LOG_LIMIT = 20 << 20  # bytes; a larger log of an earlier start is set aside

_libc = ctypes.CDLL(None) if sys.platform == "linux" else None


def die_with_parent(signal_number: int = signal.SIGTERM) -> None:
    """Asks the kernel to signal this process when its parent ends, however it ends. Linux only; elsewhere nothing happens."""
    if _libc is not None:
        _libc.prctl(PR_SET_PDEATHSIG, signal_number)


@dataclass(frozen=True)
class ManagedProcess:
    name: str
    process: subprocess.Popen[bytes]
    log: Path

    @property
    def exit_code(self) -> int | None:
        return self.process.poll()

    def last_lines(self, count: int = 5) -> str:
        with self.log.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - 8192))
            return "\n".join(file.read().decode(errors="replace").splitlines()[-count:])


def start_child_process(name: str, command: list[str], folder: Path, environment: Mapping[str, str]) -> ManagedProcess:
    """Starts ``command`` in a session of its own (Ctrl-C in the terminal reaches only us), its output appended to ``<folder>/<name>.log``,
    which only its owner may read. ``environment``: of ``child_environment.environment_for``.
    """
    make_private_folder(folder)
    log = folder / f"{name}.log"
    set_aside_large_log(log)
    with open_private_log(log) as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=dict(environment),
            start_new_session=True,
            preexec_fn=die_with_parent,
        )
    return ManagedProcess(name, process, log)


def set_aside_large_log(log: Path) -> None:
    """Renames a log of an earlier start that has grown beyond LOG_LIMIT to ``<name>.1``, in the place of an older one. Raises OSError."""
    if log.exists() and log.stat().st_size > LOG_LIMIT:
        log.replace(log.with_name(f"{log.name}.1"))


def stop_child_processes(children: Iterable[ManagedProcess], grace: float) -> list[ManagedProcess]:
    """Sends SIGTERM to all, waits up to ``grace`` seconds for all of them, then kills what is left with everything below it; returns those killed."""
    children = [child for child in children if child.exit_code is None]
    for child in children:
        child.process.terminate()
    deadline = time.monotonic() + grace
    for child in children:
        try:
            child.process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            continue
    stuck = [child for child in children if child.exit_code is None]
    for child in stuck:
        kill_tree(child.process.pid)
        child.process.wait()
    return stuck


def kill_tree(pid: int, keep_root: bool = False) -> None:
    """SIGKILL for a process (unless ``keep_root``) and its descendants, parents first, so that no parent sees its child die and reacts to it."""
    try:
        root = psutil.Process(pid)
        family = [root, *root.children(recursive=True)]
    except psutil.NoSuchProcess:
        return
    for process in family[1:] if keep_root else family:
        try:
            process.kill()
        except psutil.NoSuchProcess:
            continue


def wait_for(condition: Callable[[], bool], seconds: float, every: float = 0.1) -> bool:
    """Whether ``condition`` came true within ``seconds``."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(every)
    return True
