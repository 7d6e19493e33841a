"""Follows docs/adding-a-method.md in a copy of the repository: its file, its commands, its test."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCUMENT = ROOT / "docs" / "adding-a-method.md"
NAMED = re.compile(r"^`([\w/.]+\.py)`:\n\n```python\n(.*?)^```$", re.M | re.S)
COMMANDS = re.compile(r"^```sh\n(.*?)^```$", re.M | re.S)


@pytest.mark.training
def test_the_walk_through_works(tmp_path):
    text = DOCUMENT.read_text()
    copy = copy_library(tmp_path / "copy")
    for place, code in NAMED.findall(text):
        (copy / place).write_text(code)
    commands = [line for block in COMMANDS.findall(text) for line in block.splitlines()]
    assert [line.split()[2] for line in commands] == ["trainers", "trainers", "pytest"]
    answers = [follow(line, copy) for line in commands]
    made = {entry["name"]: entry for entry in json.loads((copy / "trainers" / "catalog.json").read_text())["methods"]}["bounded-advantage"]
    assert (made["group"], made["hooks"]) == ("group", ["advantages"])
    assert "Bounded advantages" in answers[1]
    assert "4 passed" in answers[2]


def copy_library(copy: Path) -> Path:
    """The training library and its tests."""
    for name in ("trainers", "tests/trainers"):
        shutil.copytree(ROOT / name, copy / name)  # with what Python has compiled: files keep their time
    for name in ("__init__.py", "steady.py"):
        shutil.copy(ROOT / "tests" / name, copy / "tests")
    return copy


def follow(line: str, folder: Path) -> str:
    words = line.split()
    assert words[0] == "python"
    # The copy holds the training library and its tests only: no database is needed, none is started.
    alone = ["-c", "/dev/null", "--rootdir", ".", "-p", "no:django", "-p", "no:cacheprovider"]
    more = [*alone, "-W", "ignore::pytest.PytestUnknownMarkWarning"] if words[2] == "pytest" else []
    done = subprocess.run(
        [sys.executable, *words[1:], *more],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        env={**os.environ, "PYTHONPATH": ".", "LAB_TEST_CACHE": os.environ["LAB_CACHE"]},  # one cold start for both
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
