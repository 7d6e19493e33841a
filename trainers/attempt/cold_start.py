"""The supervised cold start of the built-in policy: without it the weights are random and reinforcement finds no reward to follow.

It depends on task and difficulty only, so it is done once on a machine. ``LAB_COLD_START_STEPS`` shortens it (600 steps otherwise).
"""

import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from trainers.adapters.sft import SFTAdapter, build_demonstrations
from trainers.attempt.context import Attempt
from trainers.attempt.report import Reporter
from trainers.attempt.stop import Stopped, StopRequest
from trainers.contract.events import COLD_START, AnyEvent
from trainers.contract.hyperparameters import SFT
from trainers.contract.spec import Evaluation, FolderPolicy, Limits, RunSpec, TaskChoice
from trainers.methods import stack as stacks
from trainers.policies import loading as policies
from trainers.policies import tiny
from trainers.tasks.base import Task
from trainers.worlds.base import World


class OnlyProgress(Reporter):
    """Turns what a cold start reports into the progress of one phase of the run that waits for it."""

    def __init__(self, run: Reporter, total: int) -> None:
        super().__init__(run.writer, run.attempt)
        self.run = run
        self.total = total

    def event(self, kind: Callable[..., AnyEvent], **fields: Any) -> None:
        return

    def later(self, build: Callable[[], list[AnyEvent]]) -> None:
        return

    def metrics(self, step: int, values: Mapping[str, float | None], tokens: int = 0) -> None:
        self.run.phase(COLD_START, step, self.total)


def build_cold_start_config() -> SFT:
    steps = os.environ.get("LAB_COLD_START_STEPS")
    if not steps:
        return SFT()
    default, count = SFT(), int(steps)
    rows = min(default.demonstrations, count * default.per_device_train_batch_size)
    return SFT(max_steps=count, warmup_steps=min(default.warmup_steps, count), demonstrations=rows)


def describe_cold_start(how: SFT) -> dict[str, Any]:
    """What a cached policy is named after: settings that are left empty are not part of it."""
    return how.model_dump(exclude_none=True)


def ensure_cold_start_policy(task: Task, difficulty: str, reporter: Reporter, stop: StopRequest) -> Path:
    """Folder of the cold-started policy; trains it first if this machine has not done so. Raises Stopped."""
    how = build_cold_start_config()
    task = find_cold_start_task(task)

    def train(start: Path, folder: Path) -> None:
        spec = RunSpec(
            recipe="cold-start",
            policy=FolderPolicy(path=str(start)),
            task=TaskChoice(name=task.name, difficulty=difficulty, options=dict(task.options)),
            training=how,
            evaluation=Evaluation(prompts=0),
            limits=Limits(save_every=how.max_steps + 1),
            device="cpu",
            output=str(folder / "work"),
        )
        attempt = Attempt(spec, folder / "work", task, policies.load_policy(start, spec), OnlyProgress(reporter, how.max_steps), stop)
        with reporter.busy(COLD_START):
            rows = build_demonstrations(task, how.demonstrations, 0, difficulty, attempt.policy.tokenizer)
            trainer = SFTAdapter(attempt, rows, None, stacks.of_attempt(attempt))
        trainer.train()
        if trainer.state.global_step < how.max_steps:
            raise Stopped(stop.why)
        shutil.rmtree(attempt.folder)
        policies.export_policy(trainer.model, attempt.policy.tokenizer, folder)

    return tiny.cached_cold_start(task, difficulty, train, describe_cold_start(how))


def find_cold_start_task(task: Task) -> Task:
    """The task as every run has it: what is kept for all of them must not hold the noise that a world draws in the run that came first.

    A world whose first policy is the same under several options says with which ones it is trained (``start_options``).
    """
    return type(task)(dict(getattr(task, "start_options", task.options))) if isinstance(task, World) else task
