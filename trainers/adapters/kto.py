"""Kahneman-Tversky optimisation on TRL's KTOTrainer. The reference is the policy the run starts from.

Methods on KTO may change what it trains on, gradients and the reference policy; the loss is TRL's.
"""

from collections.abc import Sequence
from typing import Any

from datasets import Dataset
from trl import KTOConfig, KTOTrainer

from trainers.adapters.arguments import common
from trainers.adapters.resumable import Resumable
from trainers.attempt import Attempt
from trainers.callbacks import BetweenSteps
from trainers.evaluate import HeldOut
from trainers.hyperparameters import KTO
from trainers.methods.stack import Stack
from trainers.policies import adapters


class KTOAdapter(Resumable, KTOTrainer):  # type: ignore[misc]
    def __init__(self, attempt: Attempt, rows: Sequence[dict[str, Any]], heldout: HeldOut | None, stack: Stack) -> None:
        """``rows``: prompt and completion, each a list of messages, and label."""
        between = BetweenSteps()
        super().__init__(
            model=attempt.policy.model,
            processing_class=attempt.policy.tokenizer,
            args=kto_config(attempt, stack),
            train_dataset=as_dataset(rows),
            callbacks=[between],
            peft_config=adapters(attempt.spec.lora) if attempt.spec.lora else None,
        )
        self.attach(attempt, heldout, between, stack)


def as_dataset(rows: Sequence[dict[str, Any]]) -> Dataset:
    return Dataset.from_list([{name: row[name] for name in ("prompt", "completion", "label")} for row in rows])


def kto_config(attempt: Attempt, stack: Stack) -> KTOConfig:
    training = attempt.spec.training
    assert isinstance(training, KTO)
    return KTOConfig(**common(attempt) | {"beta": training.beta, "max_length": training.max_length} | stack.base.arguments())
