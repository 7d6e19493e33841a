"""Preference pairs without a reference policy, on TRL's experimental ORPOTrainer and CPOTrainer.

Methods may change what is trained on, and gradients; the loss is TRL's. TRL counts no tokens here and says no entropy: both are taken from the batch
and from the logits of its forward pass.
"""

from collections.abc import Sequence
from typing import Any

import torch
from datasets import Dataset
from torch import Tensor
from trl.experimental.cpo import CPOConfig, CPOTrainer
from trl.experimental.orpo import ORPOConfig, ORPOTrainer

from trainers.adapters.arguments import build_common_arguments
from trainers.adapters.resumable import Resumable
from trainers.adapters.tables import table_of
from trainers.attempt.callbacks import BetweenSteps
from trainers.attempt.context import Attempt
from trainers.attempt.evaluate import HeldOut
from trainers.contract.hyperparameters import CPO, ORPO
from trainers.methods.stack import Stack
from trainers.policies.loading import build_lora_config


class ReferenceFreeAdapter(Resumable):
    """Mixed in before either trainer."""

    def build(self, attempt: Attempt, rows: Sequence[dict[str, Any]], heldout: HeldOut | None, stack: Stack, config: Any) -> None:
        """``rows``: prompt, chosen and rejected, each a list of messages."""
        between = BetweenSteps()
        self._total_train_tokens = 0
        super().__init__(
            model=attempt.policy.model,
            processing_class=attempt.policy.tokenizer,
            args=config,
            train_dataset=build_pair_dataset(rows),
            callbacks=[between],
            peft_config=build_lora_config(attempt.spec.lora) if attempt.spec.lora else None,
        )
        self.attach(attempt, heldout, between, stack)

    def concatenated_forward(self, model: Any, batch: dict[str, Any]) -> Any:
        found = super().concatenated_forward(model, batch)
        labels, logits = [batch[f"{side}_labels"] for side in ("chosen", "rejected")], found[2:4]
        self._total_train_tokens += int(sum(batch[f"{side}_attention_mask"].sum() for side in ("chosen", "rejected")))
        self.store_metrics({"entropy": compute_mean_entropy(list(zip(logits, labels, strict=True)))})
        return found


class ORPOAdapter(ReferenceFreeAdapter, ORPOTrainer):  # type: ignore[misc]
    def __init__(self, attempt: Attempt, rows: Sequence[dict[str, Any]], heldout: HeldOut | None, stack: Stack) -> None:
        training = attempt.spec.training
        assert isinstance(training, ORPO)
        own = {"beta": training.beta, "max_length": training.max_length}
        self.build(attempt, rows, heldout, stack, ORPOConfig(**build_common_arguments(attempt) | own | stack.base.arguments()))


class CPOAdapter(ReferenceFreeAdapter, CPOTrainer):  # type: ignore[misc]
    def __init__(self, attempt: Attempt, rows: Sequence[dict[str, Any]], heldout: HeldOut | None, stack: Stack) -> None:
        training = attempt.spec.training
        assert isinstance(training, CPO)
        own = {"beta": training.beta, "max_length": training.max_length}
        self.build(attempt, rows, heldout, stack, CPOConfig(**build_common_arguments(attempt) | own | stack.base.arguments()))


@torch.no_grad()
def compute_mean_entropy(sides: Sequence[tuple[Tensor, Tensor]]) -> float:
    """Mean entropy in nats over the answers' tokens of ``sides``: logits (B, L, V) or (B, L - 1, V), and labels (B, L), -100 outside the answer.

    Row by row: all logits in fp32 at once would be another copy of the largest tensor there is.
    """
    sums, counts = [], []
    for logits, labels in sides:
        for row, own in zip(logits, labels[:, 1:] != -100, strict=True):
            every = torch.log_softmax(row[: own.shape[0]][own].float(), -1)
            sums.append(-(every.exp() * every).sum())
            counts.append(own.sum())
    return float(torch.stack(sums).sum() / torch.stack(counts).sum().clamp(min=1))


def build_pair_dataset(rows: Sequence[dict[str, Any]]) -> Dataset:
    return table_of(rows, ("prompt", "chosen", "rejected"))
