"""Direct preference optimisation on TRL's DPOTrainer. The reference is the policy the run starts from."""

from collections.abc import Sequence
from typing import Any

import torch
from datasets import Dataset
from trl import DPOConfig, DPOTrainer

from trainers.adapters.arguments import common
from trainers.adapters.resumable import Resumable
from trainers.attempt import Attempt
from trainers.callbacks import BetweenSteps
from trainers.evaluate import HeldOut
from trainers.hyperparameters import DPO
from trainers.policies import adapters


class DPOAdapter(Resumable, DPOTrainer):  # type: ignore[misc]
    """Where hooks of methods will be called: ``_compute_loss``."""

    def __init__(self, attempt: Attempt, rows: Sequence[dict[str, Any]], heldout: HeldOut | None) -> None:
        """``rows``: prompt, chosen and rejected, each a list of messages."""
        training = attempt.spec.training
        assert isinstance(training, DPO)
        between = BetweenSteps()
        super().__init__(
            model=attempt.policy.model,
            processing_class=attempt.policy.tokenizer,
            args=DPOConfig(**common(attempt), beta=training.beta, max_length=training.max_length, loss_type=["sigmoid"]),
            train_dataset=Dataset.from_list(list(rows)),
            callbacks=[between],
            peft_config=adapters(attempt.spec.lora) if attempt.spec.lora else None,
        )
        self.attach(attempt, heldout, between)

    def _compute_loss(self, model: Any, inputs: dict[str, Any], return_outputs: bool) -> Any:
        loss: torch.Tensor | tuple[torch.Tensor, Any] = super()._compute_loss(model, inputs, return_outputs)
        return loss
