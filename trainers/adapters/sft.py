"""Supervised fine-tuning on TRL's SFTTrainer; the loss counts completion tokens only."""

import random
from collections.abc import Sequence
from typing import Any

import torch
from datasets import Dataset
from trl import SFTConfig, SFTTrainer

from trainers.adapters.arguments import common
from trainers.adapters.resumable import Resumable
from trainers.attempt import Attempt
from trainers.callbacks import BetweenSteps
from trainers.evaluate import HeldOut
from trainers.hyperparameters import SFT
from trainers.policies import adapters
from trainers.tasks.base import Task


class SFTAdapter(Resumable, SFTTrainer):  # type: ignore[misc]
    """Where hooks of methods will be called: ``compute_loss``."""

    def __init__(self, attempt: Attempt, rows: Sequence[dict[str, Any]], heldout: HeldOut | None) -> None:
        """``rows``: prompt and completion, each a list of messages."""
        training = attempt.spec.training
        assert isinstance(training, SFT)
        between = BetweenSteps()
        super().__init__(
            model=attempt.policy.model,
            processing_class=attempt.policy.tokenizer,
            args=SFTConfig(**common(attempt), max_length=training.max_length, packing=False, completion_only_loss=True),
            train_dataset=Dataset.from_list(list(rows)),
            callbacks=[between],
            peft_config=adapters(attempt.spec.lora) if attempt.spec.lora else None,
        )
        self.attach(attempt, heldout, between)

    def compute_loss(self, model: Any, inputs: dict[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None) -> torch.Tensor:
        loss: torch.Tensor = super().compute_loss(model, inputs, return_outputs, num_items_in_batch)
        return loss


def demonstrations(task: Task, count: int, seed: int, difficulty: str) -> list[dict[str, Any]]:
    """Rows of the task's demonstrations, of the quality the task says they have."""
    rng = random.Random(seed)
    return [
        {
            "prompt": [{"role": message.role, "content": message.content} for message in example.prompt],
            "completion": [{"role": "assistant", "content": task.demonstration(example, rng)}],
        }
        for example in task.examples("train", count, seed, difficulty)
    ]
