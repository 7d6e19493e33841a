"""An interrupted run goes on exactly where it was: the same losses, rewards and rollouts as one that was never interrupted."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.trainers.conftest import SEARCH_STEPS, current, events_in, make_spec
from trainers.adapters import resumable
from trainers.attempt import train
from trainers.attempt.report import Reporter
from trainers.contract import spool
from trainers.contract.events import AttemptFinished, AttemptStarted, Metrics, Rollout

pytestmark = pytest.mark.training

STEPS = 8
LORA = {"r": 4, "alpha": 8}
# 10 prompts, 2 a step: the data starts again after step 5. GRPO also continues a schedule that is not constant.
GRPO = {"training__max_steps": STEPS, "training__prompts": 10, "training__lr_scheduler_type": "linear"}
NOT_REPEATABLE = ("speed/", "step_time", "epoch")


def learned(folder: Path) -> dict[int, dict[str, float]]:
    """What every step computed, from the attempt that counts."""
    return {
        event.step: {name: value for name, value in event.values.items() if not name.startswith(NOT_REPEATABLE)} | {"tokens": event.tokens}
        for event in current(events_in(folder), Metrics)
    }


def answers(folder: Path) -> list[tuple[object, ...]]:
    found = [event for event in current(events_in(folder), Rollout) if event.phase == "train"]
    return sorted((event.step, event.group, event.sample, event.completion, event.reward, event.advantage, event.logprobs) for event in found)


def outcomes(folder: Path) -> list[str]:
    return [event.outcome for event in events_in(folder) if isinstance(event, AttemptFinished)]


def begins(folder: Path) -> list[tuple[int, int]]:
    return [(event.attempt, event.from_step) for event in events_in(folder) if isinstance(event, AttemptStarted)]


def run_until(spec, folder: Path, step: int) -> int:
    """Runs with a stop file that appears while ``step`` is computed: as soon as the step before it is reported."""
    report = Reporter.metrics

    def metrics(self, at, values, tokens=0):
        report(self, at, values, tokens)
        if at == step - 1:
            (folder / "stop").touch()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Reporter, "metrics", metrics)
        code = train.run_training(spec, folder)
    (folder / "stop").unlink()
    return code


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("uninterrupted")
    assert train.run_training(make_spec(folder, **GRPO), folder) == train.FINISHED
    return folder


def test_a_stopped_run_goes_on_exactly(tmp_path, uninterrupted):
    spec = make_spec(tmp_path, **GRPO)
    assert [run_until(spec, tmp_path, step) for step in (2, 5, 7)] == [train.STOPPED] * 3
    assert train.run_training(spec, tmp_path) == train.FINISHED
    assert begins(tmp_path) == [(1, 0), (2, 2), (3, 5), (4, 7)]
    assert outcomes(tmp_path) == ["stopped", "stopped", "stopped", "finished"]
    assert learned(tmp_path) == learned(uninterrupted)
    assert answers(tmp_path) == answers(uninterrupted)


@pytest.mark.parametrize("step", [3, 7], ids=["in the first round of the data", "in the second round"])
def test_a_run_killed_in_mid_step_goes_on_exactly(tmp_path, uninterrupted, step):
    spec = make_spec(tmp_path, **GRPO, limits={"save_every": 2})
    (tmp_path / "run.json").write_text(spec.model_dump_json())
    kill_after(tmp_path, step)
    saved = resumable.step_of(resumable.list_whole_checkpoints(tmp_path / "checkpoints")[-1])
    assert 0 < saved < STEPS
    assert train.run_training(spec, tmp_path) == train.FINISHED
    assert begins(tmp_path) == [(1, 0), (2, saved)]
    assert learned(tmp_path) == learned(uninterrupted)
    assert answers(tmp_path) == answers(uninterrupted)


def kill_after(folder: Path, step: int) -> None:
    """Starts the trainer's command line and ends it with SIGKILL once it has reported ``step``."""
    process = subprocess.Popen([sys.executable, "-m", "trainers", "run", str(folder / "run.json")], cwd=Path(__file__).parents[2])
    try:
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline and process.poll() is None:
            lines = list(spool.read_spool_lines(folder / spool.SPOOL, 0, limit=1 << 30))
            if any(isinstance(line.event, Metrics) and line.event.step >= step for line in lines):
                break
            time.sleep(0.005)
        assert process.poll() is None, "the trainer ended before it could be killed"
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    assert not (folder / "final").exists()


def test_a_stop_waits_for_the_end_of_the_generation_batch(tmp_path):
    """What a checkpoint does not hold is the sampled batch: the stop comes when it is used up."""
    reuse = {"training__num_iterations": 2, "training__steps_per_generation": 2, "training__max_steps": 8}
    whole = tmp_path / "whole"
    assert train.run_training(make_spec(whole, **reuse), whole) == train.FINISHED
    parts = tmp_path / "parts"
    parts.mkdir()
    spec = make_spec(parts, **reuse)
    assert run_until(spec, parts, 2) == train.STOPPED
    assert train.run_training(spec, parts) == train.FINISHED
    assert begins(parts) == [(1, 0), (2, 4)]
    assert learned(parts) == learned(whole)
    assert answers(parts) == answers(whole)


@pytest.mark.parametrize(
    ("trainer", "changes"),
    [
        ("sft", {"training__demonstrations": 20, "training__gradient_accumulation_steps": 2}),
        ("dpo", {"training__max_steps": 5}),
        ("cpo", {"training__max_steps": 3, "lora": LORA}),
        ("online-dpo", {"training__max_steps": 3, "training__gradient_accumulation_steps": 2}),
        ("gkd", {"training__max_steps": 3, "training__gradient_accumulation_steps": 2, "teacher": {"kind": "tiny"}}),
        ("rloo", {"training__beta": 0.05, "training__max_steps": 3}),
        ("grpo", {"lora": LORA, "training__beta": 0.05}),
        ("grpo", {"task": {"name": "kb"}, "training__max_completion_length": 64}),
    ],
    ids=["sft", "dpo", "cpo with lora", "online dpo", "gkd", "rloo", "lora with reference", "several turns"],
)
def test_every_trainer_goes_on_exactly(tmp_path, monkeypatch, trainer, changes):
    if "task" in changes:
        monkeypatch.setenv("LAB_COLD_START_STEPS", SEARCH_STEPS)
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    parts.mkdir()
    assert train.run_training(make_spec(whole, trainer, **changes), whole) == train.FINISHED
    spec = make_spec(parts, trainer, **changes)
    assert run_until(spec, parts, 2) == train.STOPPED
    assert train.run_training(spec, parts) == train.FINISHED
    assert begins(parts) == [(1, 0), (2, 2)]
    assert learned(parts) == learned(whole)
    assert answers(parts) == answers(whole)
    if "task" in changes:
        assert any(event.turns for event in events_in(whole) if isinstance(event, Rollout))


def test_a_half_written_checkpoint_is_never_gone_on_from(tmp_path):
    spec = make_spec(tmp_path, training__max_steps=3)
    assert run_until(spec, tmp_path, 2) == train.STOPPED
    whole = tmp_path / "checkpoints" / "checkpoint-2"
    for name in (".partial-checkpoint-3", "checkpoint-7"):
        shutil.copytree(whole, tmp_path / "checkpoints" / name)
        (tmp_path / "checkpoints" / name / resumable.COUNTERS).unlink()
        (tmp_path / "checkpoints" / name / "model.safetensors").write_bytes(b"torn")
    assert train.run_training(spec, tmp_path) == train.FINISHED
    assert begins(tmp_path) == [(1, 0), (2, 2)]
    assert not (tmp_path / "checkpoints" / ".partial-checkpoint-3").exists()


def test_a_finished_run_started_again_takes_no_step(tmp_path):
    spec = make_spec(tmp_path, training__max_steps=2)
    assert train.run_training(spec, tmp_path) == train.FINISHED
    before = (tmp_path / "final" / "model.safetensors").read_bytes()
    shutil.rmtree(tmp_path / "final")
    assert train.run_training(spec, tmp_path) == train.FINISHED
    assert (tmp_path / "final" / "model.safetensors").read_bytes() == before
    assert [event.step for event in events_in(tmp_path) if isinstance(event, Metrics)] == [1, 2]


def test_checkpoints_do_not_grow_with_the_run(tmp_path):
    assert train.run_training(make_spec(tmp_path, training__max_steps=6), tmp_path) == train.FINISHED
    state = json.loads((tmp_path / "checkpoints" / "checkpoint-6" / "trainer_state.json").read_text())
    assert state["log_history"] == []
    assert state["num_input_tokens_seen"] > 0
