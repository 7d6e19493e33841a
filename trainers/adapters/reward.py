"""A reward model on TRL's RewardTrainer: the policy's network with a head that gives one number. It starts with the policy's weights.

What is exported is a sequence classifier; nothing here samples from it, so held-out evaluation is left out. TRL reports its pair accuracy. Where a
method weighs pairs or adds to the loss, the loss is worked out again from the scores of TRL's own forward pass.
"""

from collections.abc import Sequence
from typing import Any

import torch
from datasets import Dataset
from torch import Tensor
from torch.nn.functional import logsigmoid
from transformers import AutoModelForSequenceClassification, set_seed
from trl import RewardConfig, RewardTrainer

from trainers.adapters.arguments import build_common_arguments
from trainers.adapters.dpo import RowNumberCollator
from trainers.adapters.recorder import record_outputs
from trainers.adapters.resumable import Resumable
from trainers.adapters.tables import ROW, table_of
from trainers.attempt.callbacks import BetweenSteps
from trainers.attempt.context import Attempt
from trainers.attempt.evaluate import HeldOut
from trainers.contract.hyperparameters import Reward
from trainers.methods.batch import RewardBatch
from trainers.methods.stack import Stack
from trainers.policies.loading import build_loading_options, build_lora_config, weights_dtype

HOOKS = ("pair_weights", "loss")


class RewardAdapter(Resumable, RewardTrainer):  # type: ignore[misc]
    data_collator: Any
    _signature_columns: list[str]

    def __init__(self, attempt: Attempt, rows: Sequence[dict[str, Any]], heldout: HeldOut | None, stack: Stack) -> None:
        """``rows``: prompt, chosen and rejected, each a list of messages; more columns are for methods."""
        self.rows = list(rows)
        between = BetweenSteps()
        super().__init__(
            model=reward_model(attempt),
            processing_class=attempt.policy.tokenizer,
            args=reward_config(attempt, stack),
            train_dataset=build_reward_dataset(rows),
            callbacks=[between],
            peft_config=build_lora_config(attempt.spec.lora, "SEQ_CLS", modules_to_save=["score"])
            if attempt.spec.lora
            else None,  # the head is trained whole
        )
        self.data_collator = RowNumberCollator(self.data_collator)
        self.attach(attempt, None, between, stack)

    def _set_signature_columns_if_needed(self) -> None:
        super()._set_signature_columns_if_needed()
        if ROW not in self._signature_columns:
            self._signature_columns = [*self._signature_columns, ROW]

    def compute_loss(self, model: Any, inputs: dict[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None) -> Any:
        numbers = inputs[ROW].tolist()
        inputs = {name: value for name, value in inputs.items() if name != ROW}
        if not self.stack.fills(*HOOKS):
            return super().compute_loss(model, inputs, return_outputs, num_items_in_batch)
        with record_outputs(model) as outputs:
            super().compute_loss(model, inputs, False, num_items_in_batch)
        chosen, rejected = outputs[0].logits.squeeze(-1).chunk(2)
        loss = self.sum_method_losses(
            RewardBatch(
                rows=[self.rows[number] for number in numbers],
                indices=numbers,
                chosen=chosen,
                rejected=rejected,
                model_inputs={name: inputs[name] for name in ("input_ids", "attention_mask")},
                step=int(self.state.global_step) + 1,
                total_steps=self.args.max_steps,
            )
        )
        return (loss, outputs[0]) if return_outputs else loss

    def sum_method_losses(self, batch: RewardBatch) -> Tensor:
        """Scalar: the Bradley-Terry loss of a micro-batch under the methods of the stack, its centring term, and what methods add."""
        losses = -logsigmoid(batch.chosen - batch.rejected)
        weights = torch.ones_like(losses)
        for method in self.stack.filling("pair_weights"):
            if (found := method.pair_weights(batch, losses.detach())) is not None:
                method.log("weight", found.mean())
                weights = weights * found.detach()
        loss = (weights * losses).mean()
        if self.args.center_rewards_coefficient is not None:
            loss = loss + self.args.center_rewards_coefficient * ((batch.chosen + batch.rejected) ** 2).mean()
        for method in self.stack.filling("loss"):
            if (term := method.loss(batch)) is not None:
                method.log("loss", term)
                loss = loss + term
        return loss


def reward_model(attempt: Attempt) -> Any:
    """The policy's network with a fresh head, the same for the same seed."""
    policy = attempt.policy
    set_seed(attempt.spec.seed)
    model = AutoModelForSequenceClassification.from_pretrained(
        policy.folder,
        num_labels=1,
        dtype=weights_dtype(policy.bf16, attempt.spec.lora),
        use_safetensors=True,
        trust_remote_code=False,
        **build_loading_options(attempt.spec, policy.device),
    )
    model.config.pad_token_id = policy.tokenizer.pad_token_id
    return model.to(policy.device)


def build_reward_dataset(rows: Sequence[dict[str, Any]]) -> Dataset:
    """What TRL needs of the rows, and their numbers."""
    return table_of(rows, ("prompt", "chosen", "rejected"), numbered=True)


def reward_config(attempt: Attempt, stack: Stack) -> RewardConfig:
    training = attempt.spec.training
    assert isinstance(training, Reward)
    return RewardConfig(**build_common_arguments(attempt) | {"max_length": training.max_length} | stack.base.arguments())
