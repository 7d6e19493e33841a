"""What happens between the steps of every trainer: metrics to the spool, and when to evaluate, to save and to stop."""

import logging
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from trainers.attempt import ranks
from trainers.attempt.edits import Changeable, Edits

if TYPE_CHECKING:
    from trainers.adapters.resumable import Resumable

log = logging.getLogger(__name__)

LINE_SECONDS = 5.0  # between two lines about the progress in the attempt's log
SHOWN = ("reward", "loss", "rewards/accuracies", "entropy", "grad_norm")


class BetweenSteps(TrainerCallback):  # type: ignore[misc]
    """``trainer`` is set once the trainer exists: TRL's constructors take the callbacks."""

    trainer: "Resumable"

    def __init__(self) -> None:
        self.step_began = 0.0
        self.step_seconds = 0.0
        self.tokens = 0
        self.line_time = 0.0
        self.save_due = False
        self.memory_told = False

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **rest: Any) -> None:
        self.tokens = self.trainer.tokens_seen()
        self.trainer.attempt.reporter.phase("training", state.global_step, state.max_steps)

    def on_step_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **rest: Any) -> None:
        edits = self.trainer.edits
        if ranks.is_joined():
            begin_step_together(edits, state.global_step + 1, self.trainer)
        elif edits is not None:
            edits.begin_step(state.global_step + 1, self.trainer)
        self.step_began = time.perf_counter()

    def on_pre_optimizer_step(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **rest: Any) -> None:
        """After the backward pass, before the weights move: methods may change gradients and the reference policy."""
        stack, trainer = self.trainer.stack, self.trainer
        policy = trainer.accelerator.unwrap_model(trainer.model)
        stack.gradients(policy)
        if (method := stack.one("reference")) is not None:
            method.log("reference_updated", float(method.reference(state.global_step + 1, policy, stack.context.reference)))

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **rest: Any) -> TrainerControl:
        self.step_seconds = time.perf_counter() - self.step_began
        trainer, step, total = self.trainer, state.global_step, state.max_steps
        last = step >= total
        if not self.memory_told and (report := trainer.attempt.report_memory) is not None:  # most of what a run takes is there after one step
            self.memory_told = True
            report()
        stop = not last and trainer.attempt.stop.requested_anywhere()
        control.should_evaluate = trainer.heldout is not None and trainer.heldout.due(step, total)
        self.save_due |= step % trainer.attempt.spec.limits.save_every == 0
        # Between generation batches only: what a checkpoint inside one would need to go on exactly (the sampled batch) is not in it.
        if last or (trainer.at_boundary() and (stop or self.save_due)):
            control.should_save, self.save_due = True, False
            control.should_training_stop = stop or last
        return control

    def on_log(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, logs: dict[str, Any], **rest: Any) -> None:
        if "train_runtime" in logs:  # the trainer's summary of this process, not a step
            return
        tokens = self.trainer.tokens_seen()
        values = {name: value for name, value in logs.items() if value is None or isinstance(value, int | float)}
        values["speed/step_seconds"] = self.step_seconds
        values["speed/tokens_per_second"] = (tokens - self.tokens) / max(self.step_seconds, 1e-9)
        self.tokens = tokens
        values.update(ranks.average_values(self.trainer.stack.collect()))
        self.trainer.attempt.reporter.metrics(state.global_step, values, tokens)
        state.log_history.clear()  # it is in the spool; checkpoints must not grow with the run
        if time.monotonic() - self.line_time >= LINE_SECONDS or state.global_step >= state.max_steps:
            self.line_time = time.monotonic()
            shown = "  ".join(f"{name} {values[name]:.4g}" for name in SHOWN if values.get(name) is not None)
            log.info("step %d of %d  %s  %.3f s/step", state.global_step, state.max_steps, shown, self.step_seconds)


class Recorder:
    """Passes changes of settings on, and keeps them for the run's other processes."""

    def __init__(self, trainer: Changeable) -> None:
        self.trainer = trainer
        self.changes: list[Mapping[str, float]] = []

    def at_boundary(self) -> bool:
        return self.trainer.at_boundary()

    def change_settings(self, changes: Mapping[str, float]) -> None:
        self.trainer.change_settings(changes)
        self.changes.append(changes)


def begin_step_together(edits: Edits | None, step: int, trainer: Changeable) -> None:
    """Edits as the first process has read and recorded them, in all. ``edits``: None in the others."""
    recorder = Recorder(trainer)
    if edits is not None:
        edits.begin_step(step, recorder)
    changes, *_ = ranks.all_of_list([recorder.changes])
    if not ranks.is_first():
        for one in changes:
            trainer.change_settings(one)
