"""Tasks of other packages: real entry points in a real interpreter."""

import subprocess
import sys
from pathlib import Path

import pytest

from trainers.tasks.registry import BUILT_IN, WORLDS, UnknownTask, all_tasks, get_task

ROOT = Path(__file__).resolve().parents[2]

PLUGIN = """
from trainers.contract.events import Message
from trainers.tasks.base import Example, Reward, Task

class Echo(Task):
    name, title, summary = "echo", "Echo", "Say it again."
    difficulties = {"easy": "one word"}
    rewards = {"correct": Reward(lambda text, example: float(text == example.reference), "1 when equal", 1.0)}
    demonstrations = "All right."

    def example(self, rng, difficulty):
        word = "".join(rng.choice("abc") for _ in range(9))
        return Example([Message("user", word)], word)

    def gold(self, example):
        return example.reference

class Thief(Echo):
    name = "kb"

class Empty(Task):
    name = "empty"
"""


def test_the_built_in_tasks_are_there():
    assert list(all_tasks())[:3] == ["mini_gsm", "kb", "calendar"]
    assert get_task("calendar").title == "Weekdays"


def test_an_unknown_task_is_refused_with_the_names_there_are():
    with pytest.raises(UnknownTask, match="no task 'gsm': use one of mini_gsm, kb, calendar"):
        get_task("gsm")


@pytest.fixture
def plugin(tmp_path: Path) -> Path:
    (tmp_path / "echo_task.py").write_text(PLUGIN)
    info = tmp_path / "echo_task-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: echo-task\nVersion: 1.0\n")
    lines = ["echo = echo_task:Echo", "thief = echo_task:Thief", "empty = echo_task:Empty", "gone = echo_task:Gone", "number = echo_task:PLUGIN"]
    (info / "entry_points.txt").write_text("[policy_lab.tasks]\n" + "\n".join(lines) + "\n")
    return tmp_path


def python(plugin: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {"PYTHONPATH": f"{ROOT}:{plugin}", "PATH": "/usr/bin:/bin"}
    return subprocess.run([sys.executable, *arguments], cwd=plugin, env=environment, capture_output=True, text=True, timeout=240, check=False)


def test_an_installed_package_adds_a_task(plugin):
    code = "from trainers.tasks.registry import get_task; t = get_task('echo'); "
    code += "e = t.examples('train', 1, 0, 'easy')[0]; print(t.gold(e) == e.reference)"
    assert python(plugin, "-c", code).stdout == "True\n"


def test_a_plugin_cannot_replace_a_built_in_task(plugin):
    result = python(plugin, "-c", "from trainers.tasks.registry import get_task; print(type(get_task('kb')).__name__)")
    assert result.stdout == "Kb\n"
    assert "a task named 'kb' exists already" in result.stderr


@pytest.mark.parametrize(("name", "reason"), [("gone", "Gone"), ("empty", "does not define title"), ("number", "PLUGIN")])
def test_a_broken_plugin_is_named_with_its_reason_and_harms_nobody(plugin, name, reason):
    result = python(plugin, "-c", f"from trainers.tasks.registry import get_task; get_task('echo'); get_task({name!r})")
    last = result.stderr.strip().splitlines()[-1]
    assert "its plugin cannot be loaded" in last
    assert reason in last
    assert last.endswith(f"use one of {', '.join(kind.name for kind in (*BUILT_IN, *WORLDS))}, echo")


def test_the_catalogue_has_the_tasks_of_installed_packages_unless_told_otherwise(plugin):
    assert '"name": "echo"' in python(plugin, "-m", "trainers", "catalog").stdout
    assert '"name": "echo"' not in python(plugin, "-m", "trainers", "catalog", "--built-in").stdout
