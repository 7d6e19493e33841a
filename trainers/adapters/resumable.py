"""The half of an adapter that all trainers share: checkpoints that are whole or absent, exact resumption, held-out evaluation."""

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from accelerate import PartialState
from accelerate.utils import DistributedType
from peft import PeftModel
from torch.optim.lr_scheduler import LambdaLR
from transformers import PrinterCallback, Trainer
from transformers.trainer import TRAINER_STATE_NAME, TRAINING_ARGS_NAME

from trainers.attempt import ranks
from trainers.attempt.callbacks import BetweenSteps
from trainers.attempt.context import Attempt
from trainers.attempt.edits import Edits
from trainers.attempt.evaluate import HeldOut
from trainers.checks.machine_needs import SHARD_ON_CPU
from trainers.contract.edits import BETA, LEARNING_RATE
from trainers.contract.events import Checkpoint
from trainers.contract.spec import NO_SHARDING
from trainers.methods.stack import Stack
from trainers.policies import loading as policies
from trainers.policies.loading import compute_folder_size, load_model

NAME = "checkpoint-"
COUNTERS = "counters.json"  # what TRL counts outside the trainer's state
METHODS = "methods.pt"  # what the methods remember; tensors and plain values
REFERENCE = "reference"  # the reference policy, where a method moves it
PARTIAL = ".partial-"
TRAINING = "training."  # of settings that are hyperparameters


class Resumable(Trainer):  # type: ignore[misc]
    """Mixed in before a TRL trainer. ``attach`` belongs right after construction."""

    attempt: Attempt
    heldout: HeldOut | None
    between: BetweenSteps

    stack: Stack
    edits: Edits | None = None

    def attach(self, attempt: Attempt, heldout: HeldOut | None, between: BetweenSteps, stack: Stack) -> None:
        self.attempt, self.heldout, self.between, self.stack = attempt, heldout, between, stack
        between.trainer = self
        stack.context.trained = self.model
        if getattr(self, "ref_model", None) is not None:
            stack.context.reference = self.ref_model
        self.remove_callback(PrinterCallback)  # the spool has the metrics

    def create_accelerator_and_postprocess(self) -> None:
        if (self.args.fsdp or "ACCELERATE_USE_FSDP" in os.environ) and os.environ.get(SHARD_ON_CPU):
            PartialState._shared_state["distributed_type"] = DistributedType.MULTI_XPU
        super().create_accelerator_and_postprocess()

    def at_boundary(self) -> bool:
        """Whether a checkpoint now would hold all there is to go on from."""
        return True

    def change_settings(self, changes: Mapping[str, float]) -> None:
        """Trains on with other values of settings that edits may name (``trainers.contract.edits``)."""
        hyperparameters = {name.removeprefix(TRAINING): value for name, value in changes.items() if name.startswith(TRAINING)}
        self.attempt.training = self.attempt.training.model_copy(update=hyperparameters)
        if LEARNING_RATE in changes:
            change_learning_rate(self.lr_scheduler, changes[LEARNING_RATE])
        if BETA in changes:
            self.beta = changes[BETA]

    def counters(self) -> dict[str, int]:
        return {"tokens": self._total_train_tokens}

    def restore_counters(self, counters: dict[str, int]) -> None:
        self._total_train_tokens = counters["tokens"]

    def tokens_seen(self) -> int:
        return int(self._total_train_tokens)

    def _evaluate(self, trial: Any, ignore_keys_for_eval: Any, skip_scheduler: bool = False) -> dict[str, float]:
        """Called by the training loop between logging and saving, when the callback asked for it."""
        if self.heldout is not None:
            self.measure_heldout(self.state.global_step)
            self.attempt.reporter.phase("training", self.state.global_step, self.state.max_steps)
        self.control.should_evaluate = False  # the loop asks once more when an epoch ends
        return {}

    def measure_heldout(self, step: int) -> None:
        """By the first of several processes, while the others wait."""
        if (heldout := self.heldout) is not None:
            with ranks.gather_weights(self.model):
                ranks.done_by_first(lambda: heldout.measure(self.accelerator.unwrap_model(self.model), step))

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        """Writes everything under another name first: a checkpoint that can be seen is whole, and every event up to it is on the disk.

        Of several processes each saves the state of its random numbers, and the first one all the rest.
        """
        step, root = self.state.global_step, self.attempt.checkpoints
        self.attempt.reporter.phase("saving")
        partial, path = root / f"{PARTIAL}{NAME}{step}", root / f"{NAME}{step}"
        ranks.done_by_first(lambda: make_empty_folder(partial))
        self.save_state(partial)
        ranks.wait_for_all()
        ranks.done_by_first(lambda: self.complete_checkpoint(partial, path))
        self.attempt.reporter.phase("training", step, self.state.max_steps)

    def save_state(self, partial: Path) -> None:
        """Weights, optimiser, schedule and random numbers."""
        self.save_model(str(partial), _internal_call=True)
        if ranks.is_first():
            (partial / TRAINING_ARGS_NAME).unlink(missing_ok=True)  # a pickle that nothing here reads
            if isinstance(self.model, PeftModel):
                self.model.config.save_pretrained(partial)
        self._save_optimizer_and_scheduler(str(partial))
        self._save_scaler(str(partial))
        self._save_rng_state(str(partial))
        self.store_flos()

    def complete_checkpoint(self, partial: Path, path: Path) -> None:
        """What one process knows for all, then the checkpoint's name and event."""
        self.state.save_to_json(str(partial / TRAINER_STATE_NAME))
        torch.save(self.stack.state(), partial / METHODS)
        if self.stack.fills("reference"):
            self.accelerator.unwrap_model(self.stack.context.reference).save_pretrained(partial / REFERENCE)
        (partial / COUNTERS).write_text(json.dumps(self.counters()))
        publish_checkpoint(self.attempt, partial, path)

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        super()._load_optimizer_and_scheduler(checkpoint)
        if checkpoint is not None:
            self.restore_counters(json.loads((Path(checkpoint) / COUNTERS).read_text()))
            self.restore_methods(Path(checkpoint))

    def restore_methods(self, checkpoint: Path) -> None:
        """What the methods remembered; a reference policy that a method had moved."""
        if (file := checkpoint / METHODS).exists():  # checkpoints of earlier versions have none
            self.stack.restore(torch.load(file, weights_only=True))
        if (folder := checkpoint / REFERENCE).is_dir():
            moved = load_model(folder, torch.float32).state_dict()
            self.accelerator.unwrap_model(self.stack.context.reference).load_state_dict(moved)

    @property
    def steps_done(self) -> int:
        return int(self.state.global_step)

    def train_to_end(self, resume: Path | None) -> None:
        """Up to the last step, or to a stop. A run whose last step is already saved only gets its weights back: the loop would take one step more."""
        if resume and step_of(resume) >= self.args.max_steps:
            self.restore_weights(resume)
        else:
            self.train(resume_from_checkpoint=str(resume) if resume else None)

    def collect_shared_weights(self) -> dict[str, Any] | None:
        """Where each process holds a share of the weights, all of them, in the first one."""
        sharded = self.attempt.spec.resources.sharding != NO_SHARDING
        return self.accelerator.get_state_dict(self.model) if sharded else None

    def export(self, folder: Path, weights: dict[str, Any] | None) -> None:
        """Writes the trained policy. ``weights``: where the model itself holds a share of them."""
        policy = self.attempt.policy
        policies.export_policy(self.accelerator.unwrap_model(self.model), policy.tokenizer, folder, policy.folder, weights)

    def restore_weights(self, checkpoint: Path) -> None:
        """The policy as it was saved, without training on."""
        self._load_from_checkpoint(str(checkpoint))
        self.state.global_step = step_of(checkpoint)


def publish_checkpoint(attempt: Attempt, partial: Path, path: Path) -> None:
    """Gives a checkpoint that is written its name, once it and every event so far are on the disk; reports it, and removes the oldest ones."""
    written = compute_folder_size(partial)
    sync_folder(partial)
    attempt.reporter.writer.sync()
    shutil.rmtree(path, ignore_errors=True)
    partial.rename(path)
    fsync_path(path.parent)
    attempt.reporter.event(Checkpoint, step=step_of(path), path=str(path.relative_to(attempt.folder)), bytes=written)
    for old in list_whole_checkpoints(path.parent)[: -attempt.spec.limits.keep_checkpoints]:
        shutil.rmtree(old)


def change_learning_rate(scheduler: LambdaLR, peak: float) -> None:
    """Scales the whole schedule: the warm-up and the decay go on where they are, towards and from the new peak. Its state is in the checkpoints."""
    scheduler.base_lrs = [peak] * len(scheduler.base_lrs)
    for group, factor in zip(scheduler.optimizer.param_groups, scheduler.lr_lambdas, strict=True):
        group["initial_lr"], group["lr"] = peak, peak * factor(scheduler.last_epoch)
    scheduler._last_lr = [group["lr"] for group in scheduler.optimizer.param_groups]  # what is reported as the step's learning rate


def make_empty_folder(path: Path) -> None:
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir(parents=True)


def step_of(checkpoint: Path) -> int:
    return int(checkpoint.name.removeprefix(NAME))


def list_whole_checkpoints(root: Path) -> list[Path]:
    """The whole checkpoints, oldest first."""
    found = [path for path in root.glob(f"{NAME}*") if path.name.removeprefix(NAME).isdigit() and (path / COUNTERS).is_file()]
    return sorted(found, key=step_of)


def clear_partial(root: Path) -> None:
    """Removes what a killed attempt left half written."""
    for path in root.glob(f"{PARTIAL}*"):
        shutil.rmtree(path)


def fsync_path(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sync_folder(folder: Path) -> None:
    for path in folder.rglob("*"):
        fsync_path(path)
    fsync_path(folder)
