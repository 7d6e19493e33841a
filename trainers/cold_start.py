"""The supervised cold start of the built-in policy: without it the weights are random and reinforcement finds no reward to follow.

It depends on task and difficulty only, so it is done once on a machine. ``LAB_COLD_START_STEPS`` shortens it (600 steps otherwise).
"""

import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from trainers import policies, tiny
from trainers.adapters.sft import SFTAdapter, demonstrations
from trainers.attempt import Attempt
from trainers.events import AnyEvent
from trainers.hyperparameters import SFT
from trainers.methods import stack as stacks
from trainers.report import Reporter
from trainers.spec import Evaluation, FolderPolicy, Limits, RunSpec, TaskChoice
from trainers.stop import Stopped, StopRequest
from trainers.tasks.base import Task

PHASE = "cold start"


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
        self.run.phase(PHASE, step, self.total)


def training() -> SFT:
    steps = os.environ.get("LAB_COLD_START_STEPS")
    if not steps:
        return SFT()
    default, count = SFT(), int(steps)
    rows = min(default.demonstrations, count * default.per_device_train_batch_size)
    return SFT(max_steps=count, warmup_steps=min(default.warmup_steps, count), demonstrations=rows)


def policy(task: Task, difficulty: str, reporter: Reporter, stop: StopRequest) -> Path:
    """Folder of the cold-started policy; trains it first if this machine has not done so. Raises Stopped."""
    how = training()

    def train(start: Path, folder: Path) -> None:
        spec = RunSpec(
            recipe="cold-start",
            policy=FolderPolicy(path=str(start)),
            task=TaskChoice(name=task.name, difficulty=difficulty),
            training=how,
            evaluation=Evaluation(prompts=0),
            limits=Limits(save_every=how.max_steps + 1),
            device="cpu",
            output=str(folder / "work"),
        )
        attempt = Attempt(spec, folder / "work", task, policies.load(start, spec), OnlyProgress(reporter, how.max_steps), stop)
        with reporter.busy(PHASE):
            trainer = SFTAdapter(attempt, demonstrations(task, how.demonstrations, 0, difficulty), None, stacks.of_attempt(attempt))
        trainer.train()
        if trainer.state.global_step < how.max_steps:
            raise Stopped(stop.why)
        shutil.rmtree(attempt.folder)
        policies.export(trainer.model, attempt.policy.tokenizer, folder)

    return tiny.cached_cold_start(task, difficulty, train, how.model_dump())
