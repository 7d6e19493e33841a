"""Kahneman-Tversky optimisation on TRL's KTOTrainer. The reference is the policy the run starts from.

Methods on KTO may change what it trains on, gradients and the reference policy; the loss is TRL's.
"""

from collections.abc import Sequence
from typing import Any

from datasets import Dataset
from trl import KTOConfig, KTOTrainer

from trainers.adapters.arguments import build_common_arguments
from trainers.adapters.resumable import Resumable
from trainers.adapters.tables import table_of
from trainers.attempt.callbacks import BetweenSteps
from trainers.attempt.context import Attempt
from trainers.attempt.evaluate import HeldOut
from trainers.contract.hyperparameters import KTO
from trainers.methods.stack import Stack
from trainers.policies.loading import build_lora_config


class KTOAdapter(Resumable, KTOTrainer):  # type: ignore[misc]
    def __init__(self, attempt: Attempt, rows: Sequence[dict[str, Any]], heldout: HeldOut | None, stack: Stack) -> None:
        """``rows``: prompt and completion, each a list of messages, and label."""
        between = BetweenSteps()
        super().__init__(
            model=attempt.policy.model,
            processing_class=attempt.policy.tokenizer,
            args=kto_config(attempt, stack),
            train_dataset=build_kto_dataset(rows),
            callbacks=[between],
            peft_config=build_lora_config(attempt.spec.lora) if attempt.spec.lora else None,
        )
        self.attach(attempt, heldout, between, stack)


def build_kto_dataset(rows: Sequence[dict[str, Any]]) -> Dataset:
    return table_of(rows, ("prompt", "completion", "label"))


def kto_config(attempt: Attempt, stack: Stack) -> KTOConfig:
    training = attempt.spec.training
    assert isinstance(training, KTO)
    return KTOConfig(**build_common_arguments(attempt) | {"beta": training.beta, "max_length": training.max_length} | stack.base.arguments())
