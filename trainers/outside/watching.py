"""The callback that turns anybody's trainer into a run of a lab: metrics of every trainer, rollouts of those that sample."""

from __future__ import annotations

import atexit
import logging
import os
import re
import socket
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from trainers.attempt.code_version import find_code_version
from trainers.attempt.environment import describe_environment
from trainers.attempt.report import Reporter
from trainers.contract.events import AttemptFinished, AttemptStarted, Code
from trainers.contract.spool import SPOOL, SpoolWriter, last_attempt
from trainers.outside.client import LabClient
from trainers.outside.observing import Observer
from trainers.outside.sending import SEND, BackgroundSender, Sender, ensure_run_opening

log = logging.getLogger(__name__)

KINDS = {
    "GRPO": "grpo",
    "RLOO": "rloo",
    "DPO": "dpo",
    "KTO": "kto",
    "ORPO": "orpo",
    "CPO": "cpo",
    "OnlineDPO": "online-dpo",
    "GKD": "gkd",
    "SFT": "sft",
    "Reward": "reward",
}
LAST_SECONDS = 30.0  # how long the end of training waits for the lab
PACKAGES = ("torch", "transformers", "trl", "accelerate", "peft")
SECRET = re.compile("token|secret|password|key", re.IGNORECASE)


class LabCallback(TrainerCallback):  # type: ignore[misc]
    """For ``callbacks=[LabCallback()]``; ``watch`` adds it to a trainer that exists, which also gives it the rollouts.

    ``folder`` is where the run is kept until, and after, it is in the lab; a script started again with the same folder continues its run.
    Raises LabError at once when LAB_URL or LAB_TOKEN are missing; afterwards nothing of the lab reaches training.
    """

    def __init__(self, name: str = "", folder: str | Path | None = None, client: LabClient | None = None, task: str = "") -> None:
        self.client = client or LabClient()
        self.name, self.task = name, task
        self.folder = Path(folder) if folder else None
        self.trainer: Any = None
        self.reporter: Reporter | None = None
        self.observer: Observer | None = None
        self.background: BackgroundSender | None = None
        self.total_steps = self.step = 0

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **rest: Any) -> None:
        if not state.is_world_process_zero or self.reporter is not None:
            return
        folder = self.folder or Path(args.output_dir or ".") / "lab"
        self.total_steps = max(0, state.max_steps)
        ensure_run_opening(folder, self.opening(args, rest.get("model")))
        attempt = last_attempt(folder / SPOOL) + 1
        self.reporter = Reporter(SpoolWriter(folder / SPOOL), attempt)
        self.reporter.event(AttemptStarted, **self.beginning(args, state, rest.get("model")))
        if hasattr(self.trainer, "_generate_and_score_completions"):
            self.observer = Observer(self.trainer, self.reporter.later, self.reporter.stamp)
        self.background = BackgroundSender(Sender(self.client, folder))
        self.background.start()
        atexit.register(self.ended_without_a_word)

    def opening(self, args: TrainingArguments, model: Any) -> dict[str, Any]:
        kind = type(self.trainer).__name__ if self.trainer is not None else type(args).__name__
        config = {name: value for name, value in args.to_dict().items() if not SECRET.search(name) and is_plain(value)}
        policy = getattr(getattr(model, "config", None), "_name_or_path", "") or type(model).__name__
        return {
            "name": self.name or getattr(args, "run_name", None) or Path(args.output_dir or "run").name,
            "trainer": next((short for long, short in KINDS.items() if kind.startswith(long)), "other"),
            "policy": str(policy)[:200],
            "task": self.task,
            "total_steps": self.total_steps,
            "config": config,
        }

    def beginning(self, args: TrainingArguments, state: TrainerState, model: Any) -> dict[str, Any]:
        tokenizer = getattr(self.trainer, "processing_class", None)
        added = getattr(getattr(tokenizer, "tokenizer", tokenizer), "added_tokens_decoder", {})
        return {
            "from_step": state.global_step,
            "total_steps": self.total_steps,
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "device": str(args.device),
            "command": [Path(sys.argv[0]).name] if sys.argv else [],  # arguments may hold secrets
            "versions": {name: found for name in PACKAGES if (found := find_package_version(name))},
            "special_tokens": {int(key): token.content for key, token in added.items() if token.special},
            "parameters": sum(one.numel() for one in model.parameters()) if model is not None else 0,
            "environment": describe_environment(find_script_version()),
        }

    def on_log(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, logs: dict[str, Any] | None = None, **rest: Any) -> None:
        if self.reporter is None or not logs or "train_runtime" in logs:
            return
        values = {
            to_heldout_name(name): float(value) for name, value in logs.items() if isinstance(value, int | float) and name not in ("epoch", "step")
        }
        self.reporter.metrics(state.global_step, values, int(getattr(state, "num_input_tokens_seen", 0) or logs.get("num_tokens") or 0))

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **rest: Any) -> TrainerControl:
        self.step = state.global_step
        if self.background is not None and self.background.sender.stop_asked and not control.should_training_stop:
            log.warning("somebody asked in the lab for this run to stop; it saves and stops after step %d", self.step)
            control.should_save = control.should_training_stop = True
        return control

    def on_train_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **rest: Any) -> None:
        stopped = self.background is not None and self.background.sender.stop_asked and state.global_step < self.total_steps
        self.end("stopped" if stopped else "finished")

    def end(self, outcome: str, error: str = "") -> None:
        """Writes the last event and waits a while for the lab to have everything."""
        reporter, self.reporter = self.reporter, None
        if reporter is None or self.background is None:
            return
        if self.observer is not None:
            self.observer.safely(self.observer.flush)
        reporter.event(AttemptFinished, outcome=outcome, step=self.step, error=error[:2000])
        reporter.writer.close()
        atexit.unregister(self.ended_without_a_word)
        self.background.over.set()
        self.background.join(LAST_SECONDS)
        sender = self.background.sender
        try:
            done = not self.background.is_alive() and sender.finish(LAST_SECONDS)
        except Exception as problem:
            log.error("the lab did not take the end of this run: %s", problem)
            done = False
        if done:
            log.info("the run is in the lab: %s%s", self.client.url, sender.page)
        else:
            log.warning("not everything is in the lab yet; send the rest with: %s %s", SEND, sender.folder)

    def ended_without_a_word(self) -> None:
        """The interpreter ends and the trainer never said so: an exception, or Ctrl-C."""
        error = getattr(sys, "last_value", None)
        self.end("failed" if error is not None else "stopped", f"{type(error).__name__}: {error}" if error is not None else "")


def watch(trainer: Any, name: str = "", folder: str | Path | None = None, client: LabClient | None = None, task: str = "") -> LabCallback:
    """Makes what ``trainer`` does a run of the lab: call it once, before ``trainer.train()``. Arguments as in LabCallback."""
    callback = LabCallback(name, folder, client, task)
    callback.trainer = trainer
    trainer.add_callback(callback)
    return callback


def find_script_version() -> Code:
    """The commit of the script that trains, not of this package; empty in a notebook."""
    script = Path(sys.argv[0]) if sys.argv and sys.argv[0] else None
    return find_code_version(script.resolve().parent) if script is not None and script.is_file() else Code()


def to_heldout_name(name: str) -> str:
    """transformers' eval_reward is the lab's heldout/reward."""
    return f"heldout/{name.removeprefix('eval_')}" if name.startswith("eval_") else name


def is_plain(value: Any) -> bool:
    return value is None or isinstance(value, bool | int | float | str)


def find_package_version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""
