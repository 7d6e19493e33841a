"""Which commit a folder's code is, and whether it was changed since. What nothing says is left empty; nothing is guessed.

A clone is asked with git. What was made with ``git archive`` (``make bundle``) has its commit in ``commit.txt``, where git put it while packing;
the image has it there if it was built with LAB_COMMIT.
"""

import os
import re
import subprocess
from pathlib import Path

from trainers.contract.events import Code

ROOT = Path(__file__).resolve().parents[2]
STAMP = Path("trainers/commit.txt")  # in a clone it holds a placeholder
COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
SECONDS = 10  # git gets for an answer
# A repository of another user is answered about too, and none of its hooks is run.
OPTIONS = ("-c", "safe.directory=*", "-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null")
KEPT = ("PATH", "LANG", "LC_ALL", "SYSTEMROOT")  # all that git gets of the environment: no secrets, and nothing that names another repository
QUIET = {"GIT_OPTIONAL_LOCKS": "0", "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1", "GIT_TERMINAL_PROMPT": "0"}


def find_code_version(folder: Path = ROOT) -> Code:
    """By git where the commit holds the folder, else as the archive says; ``Code()`` where neither knows."""
    # HEAD:./ is the folder's tree in that commit: there is none when the folder only happens to lie inside of somebody's repository.
    answer = ask_git(folder, "rev-parse", "HEAD", "HEAD:./")
    commit = (answer or "").partition("\n")[0]
    if COMMIT.fullmatch(commit):
        changes = ask_git(folder, "status", "--porcelain", "--", ".")
        return Code(commit, None if changes is None else bool(changes), "git")
    try:
        stamp = (folder / STAMP).read_text().strip()
    except OSError:
        return Code()
    return Code(stamp, None, "release") if COMMIT.fullmatch(stamp) else Code()


def ask_git(folder: Path, *words: str) -> str | None:
    """What git prints; None when it fails, is not installed, or takes too long."""
    environment = {name: os.environ[name] for name in KEPT if name in os.environ} | QUIET
    command = ["git", *OPTIONS, "-C", str(folder), *words]
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=SECONDS, check=False, env=environment)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
