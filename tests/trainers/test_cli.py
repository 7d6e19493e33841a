"""The command line: its help, its exit codes, one problem a line, and which folder a run is in."""

import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from trainers.__main__ import main
from trainers.contract.spec import parse_spec

ROOT = Path(__file__).resolve().parents[2]


def make_run(folder: Path, **parts: Any) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "run.json"
    path.write_text(json.dumps({"task": {"name": "kb"}, "training": {"trainer": "grpo"}, "output": ".", **parts}))
    return path


def shell(*arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [sys.executable, "-m", "trainers", *arguments], input=stdin, env=environment, capture_output=True, text=True, timeout=240, check=False
    )


@pytest.mark.parametrize("command", [[], ["run"], ["preflight"], ["replay"], ["catalog"]])
def test_every_command_has_help(command, capsys):
    with pytest.raises(SystemExit) as exit:
        main([*command, "--help"])
    assert exit.value.code == 0
    assert "usage: python -m trainers" in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [[], ["trian"], ["run"], ["run", "a", "b"]])
def test_a_wrong_command_line_exits_2(arguments):
    with pytest.raises(SystemExit) as exit:
        main(arguments)
    assert exit.value.code == 2


def test_preflight_prints_one_json_object_and_exits_0(tmp_path):
    result = shell("preflight", str(make_run(tmp_path)))
    assert result.returncode == 0
    assert json.loads(result.stdout)["ok"] is True
    assert result.stderr == ""


def test_preflight_of_standard_input_exits_2_with_the_problems_on_both_streams(tmp_path):
    result = shell("preflight", "-", stdin=json.dumps({"task": {"name": "x"}, "training": {"trainer": "sft", "max_steps": 0}, "output": "run"}))
    assert result.returncode == 2
    assert [problem["field"] for problem in json.loads(result.stdout)["problems"]] == ["training.max_steps"]
    assert result.stderr.splitlines() == ["training.max_steps = 0: must be at least 1 (the default is 600)"]


@pytest.mark.parametrize("stdin", ["", "{", "[]", '{"seed": NaN}', '{"task": {"name": "\\ud800"}}'])
def test_preflight_answers_in_json_whatever_it_is_given(stdin):
    result = shell("preflight", "-", stdin=stdin)
    assert result.returncode == 2
    assert json.loads(result.stdout)["problems"]
    assert "Traceback" not in result.stderr


def test_preflight_does_not_look_for_a_pending_policy(tmp_path, capsys):
    path = make_run(tmp_path, policy={"kind": "run", "folder": str(tmp_path / "parent")})
    assert main(["preflight", str(path)]) == 2
    assert main(["preflight", str(path), "--policy-pending"]) == 0


def test_a_refused_run_exits_2_with_one_problem_a_line_and_leaves_the_folder_as_it_was(tmp_path):
    path = make_run(tmp_path / "run", task={"name": "gsm\nfoo"}, dataset={"path": "none.jsonl"})
    result = shell("run", str(path))
    assert result.returncode == 2
    assert len(result.stderr.splitlines()) == 2
    assert all(line.startswith(("task.name", "dataset.path")) for line in result.stderr.splitlines())
    assert os.listdir(path.parent) == ["run.json"]


def test_a_run_file_that_is_not_there_exits_2(tmp_path):
    result = shell("run", str(tmp_path / "none.json"))
    assert result.returncode == 2
    assert "none.json cannot be read" in result.stderr


@pytest.fixture
def trained(monkeypatch) -> list[tuple[Any, Path]]:
    """What the trainer would have been called with; training itself is tested where it is written."""
    calls: list[tuple[Any, Path]] = []
    train = ModuleType("trainers.attempt.train")
    train.run_training = lambda spec, folder: calls.append((spec, folder)) or 3  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "trainers.attempt.train", train)
    monkeypatch.setattr("trainers.attempt.train", train, raising=False)
    return calls


def test_the_trainers_exit_code_is_passed_on(tmp_path, trained):
    path = make_run(tmp_path)
    assert main(["run", str(path)]) == 3
    assert trained == [(parse_spec(json.loads(path.read_text())), tmp_path)]


def test_a_run_goes_into_the_specs_output_and_takes_its_file_there(tmp_path, trained):
    path = make_run(tmp_path / "specs", output=str(tmp_path / "runs" / "one"))
    assert main(["run", str(path)]) == 3
    assert trained[0][1] == tmp_path / "runs" / "one"
    assert (tmp_path / "runs" / "one" / "run.json").read_bytes() == path.read_bytes()
    assert main(["run", str(path)]) == 3  # again: the same run goes on


def test_a_folder_that_holds_another_run_is_refused(tmp_path, trained, capsys):
    make_run(tmp_path / "one", seed=1)
    assert main(["run", str(make_run(tmp_path / "specs", output="../one", seed=2))]) == 2
    assert "holds another run" in capsys.readouterr().err
    assert trained == []


def test_a_run_that_has_begun_does_not_need_the_policy_it_began_with(tmp_path, trained):
    path = make_run(tmp_path / "run", policy={"kind": "run", "folder": str(tmp_path / "deleted")})
    assert main(["run", str(path)]) == 2
    (tmp_path / "run" / "checkpoints" / "checkpoint-50").mkdir(parents=True)
    assert main(["run", str(path)]) == 3


def test_the_catalogue_goes_to_a_file(tmp_path):
    assert main(["catalog", "--built-in", "--out", str(tmp_path / "catalog.json")]) == 0
    assert (tmp_path / "catalog.json").read_text() == (ROOT / "trainers" / "catalog.json").read_text()


def test_a_pipe_that_is_closed_early_is_no_error():
    process = subprocess.Popen([sys.executable, "-m", "trainers", "catalog"], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    process.stdout.read(10)
    process.stdout.close()
    assert process.stderr.read() == b""
    assert process.wait(30) == 0
