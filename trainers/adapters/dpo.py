"""Direct preference optimisation on TRL's DPOTrainer, with the hooks of the run's methods. The reference is the policy the run starts from.

TRL computes the loss and its metrics; where a method fills a hook of pairs, the loss is worked out again from the token log-probabilities of the
same two forward passes.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from datasets import Dataset
from torch import Tensor
from torch.nn.functional import logsigmoid
from trl import DPOConfig, DPOTrainer

from trainers.adapters.arguments import build_common_arguments
from trainers.adapters.recorder import record_outputs
from trainers.adapters.resumable import Resumable
from trainers.adapters.tables import ROW, table_of
from trainers.attempt.callbacks import BetweenSteps
from trainers.attempt.context import Attempt
from trainers.attempt.evaluate import HeldOut
from trainers.contract.hyperparameters import DPO
from trainers.data.datasets import NUMBERS
from trainers.methods.base import hooks_of
from trainers.methods.batch import PairBatch
from trainers.methods.pair_columns import PairColumns
from trainers.methods.stack import Stack
from trainers.policies.loading import build_lora_config

HOOKS = ("pair_ratios", "pair_margins", "pair_loss", "pair_weights", "loss")


class RowNumberCollator:
    """TRL's collator, with the rows' numbers besides."""

    def __init__(self, collate: Callable[[list[dict[str, Any]]], dict[str, Any]]) -> None:
        self.collate = collate

    def __call__(self, examples: list[dict[str, Any]]) -> dict[str, Any]:
        return {**self.collate(examples), ROW: torch.tensor([example[ROW] for example in examples])}


class DPOAdapter(Resumable, DPOTrainer):  # type: ignore[misc]
    data_collator: Any
    _signature_columns: list[str]

    def __init__(self, attempt: Attempt, rows: Sequence[dict[str, Any]], heldout: HeldOut | None, stack: Stack) -> None:
        """``rows``: prompt, chosen and rejected, each a list of messages; more columns are for methods."""
        training = attempt.spec.training
        assert isinstance(training, DPO)
        self.rows = list(rows)
        between = BetweenSteps()
        order = {"train_sampling_strategy": "sequential"} if any(method.ordered for method in stack.methods) else {}
        super().__init__(
            model=attempt.policy.model,
            processing_class=attempt.policy.tokenizer,
            args=DPOConfig(
                **build_common_arguments(attempt) | {"beta": training.beta, "max_length": training.max_length} | stack.base.arguments() | order
            ),
            train_dataset=build_dpo_dataset(rows),
            callbacks=[between],
            peft_config=build_lora_config(attempt.spec.lora) if attempt.spec.lora else None,
        )
        self.data_collator = RowNumberCollator(self.data_collator)
        self.attach(attempt, heldout, between, stack)
        self.hooked = calls_hooks(stack, self.rows)

    def _set_signature_columns_if_needed(self) -> None:
        super()._set_signature_columns_if_needed()
        if ROW not in self._signature_columns:
            self._signature_columns = [*self._signature_columns, ROW]

    def _compute_loss(self, model: Any, inputs: dict[str, Any], return_outputs: bool) -> Any:
        numbers = inputs[ROW].tolist()
        inputs = {name: value for name, value in inputs.items() if name != ROW}
        if not self.hooked:
            return super()._compute_loss(model, inputs, return_outputs)
        with record_outputs(model, self.ref_model) as outputs:
            super()._compute_loss(model, inputs, return_outputs=False)
        batch = self.batch_of(numbers, inputs, outputs[0].log_probs, outputs[1].log_probs)
        return method_loss(self.stack, batch, self.base_loss)

    def batch_of(self, numbers: list[int], inputs: dict[str, Any], logprobs: Tensor, reference: Tensor) -> PairBatch:
        """``logprobs`` and ``reference``: (2B, T), chosen above rejected, 0 outside the completions."""
        length = inputs["completion_mask"].shape[1] - 1
        masks = inputs["completion_mask"][:, 1:].float().chunk(2)
        ids = inputs["input_ids"][:, 1:].chunk(2)
        own, theirs = logprobs[:, -length:].chunk(2), reference[:, -length:].chunk(2)
        return PairBatch(
            rows=[self.rows[number] for number in numbers],
            indices=numbers,
            chosen_ids=ids[0],
            rejected_ids=ids[1],
            chosen_mask=masks[0],
            rejected_mask=masks[1],
            chosen_logprobs=own[0],
            rejected_logprobs=own[1],
            chosen_reference=theirs[0].detach(),
            rejected_reference=theirs[1].detach(),
            beta=self.beta,
            step=int(self.state.global_step) + 1,
            total_steps=self.args.max_steps,
            reduce=average_token_ratios if self.loss_types == ["ipo"] else sum_token_ratios,
        )

    def base_loss(self, score: Tensor) -> Tensor:
        """(B,) score (see PairBatch) -> (B,) loss of the base."""
        if self.loss_types == ["ipo"]:
            return (score - 1 / (2 * self.beta)) ** 2
        return -logsigmoid(score)


def calls_hooks(stack: Stack, rows: Sequence[dict[str, Any]]) -> bool:
    """Whether the loss is worked out again: a method fills a hook of it, or the rows have a column that the base reads."""
    if not isinstance(stack.base, PairColumns) or any(name in row for row in rows for name in NUMBERS):
        return stack.fills(*HOOKS)
    return any(hook in hooks_of(type(method)) for method in stack.methods if method is not stack.base for hook in HOOKS)


def sum_token_ratios(ratios: Tensor, mask: Tensor) -> Tensor:
    return (ratios * mask).sum(1)


def average_token_ratios(ratios: Tensor, mask: Tensor) -> Tensor:
    return (ratios * mask).sum(1) / mask.sum(1).clamp(min=1.0)


def method_loss(stack: Stack, batch: PairBatch, base: Callable[[Tensor], Tensor]) -> Tensor:
    """Scalar loss of a batch of pairs under the methods of the stack."""
    chosen = (batch.chosen_logprobs - batch.chosen_reference) * batch.chosen_mask
    rejected = (batch.rejected_logprobs - batch.rejected_reference) * batch.rejected_mask
    for method in stack.filling("pair_ratios"):
        chosen, rejected = method.pair_ratios(batch, chosen, rejected)
    score = batch.reduce(chosen, batch.chosen_mask) - batch.reduce(rejected, batch.rejected_mask)
    if batch.reduce is sum_token_ratios:
        score = batch.beta * score
    for method in stack.filling("pair_margins"):
        if (margin := method.pair_margins(batch)) is not None:
            method.log("margin", margin.mean())
            score = score - margin
    batch.score = score
    lower = base
    for method in stack.filling("pair_loss"):
        lower = wrap_pair_loss(method, batch, lower)
    losses = lower(score)
    batch.losses = losses
    for method in stack.filling("pair_weights"):
        if (weights := method.pair_weights(batch, losses)) is not None:
            method.log("weight", weights.mean())
            losses = losses * weights
    loss = losses.mean()
    for method in stack.filling("loss"):
        if (term := method.loss(batch)) is not None:
            method.log("loss", term)
            loss = loss + term
    return loss


def wrap_pair_loss(method: Any, batch: PairBatch, lower: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    return lambda score: method.pair_loss(batch, score, lower)


def build_dpo_dataset(rows: Sequence[dict[str, Any]]) -> Dataset:
    """What TRL needs of the rows, and their numbers."""
    return table_of(rows, ("prompt", "chosen", "rejected"), numbered=True)
