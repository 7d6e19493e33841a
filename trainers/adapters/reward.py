"""A reward model on TRL's RewardTrainer: the policy's network with a head that gives one number. It starts with the policy's weights.

What is exported is a sequence classifier; nothing here samples from it, so held-out evaluation is left out. TRL reports its pair accuracy.
"""

from collections.abc import Sequence
from typing import Any

from datasets import Dataset
from transformers import AutoModelForSequenceClassification, set_seed
from trl import RewardConfig, RewardTrainer

from trainers.adapters.arguments import build_common_arguments
from trainers.adapters.resumable import Resumable
from trainers.adapters.tables import table_of
from trainers.attempt.callbacks import BetweenSteps
from trainers.attempt.context import Attempt
from trainers.attempt.evaluate import HeldOut
from trainers.contract.hyperparameters import Reward
from trainers.methods.stack import Stack
from trainers.policies.loading import build_loading_options, build_lora_config, weights_dtype


class RewardAdapter(Resumable, RewardTrainer):  # type: ignore[misc]
    def __init__(self, attempt: Attempt, rows: Sequence[dict[str, Any]], heldout: HeldOut | None, stack: Stack) -> None:
        """``rows``: prompt, chosen and rejected, each a list of messages."""
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
        self.attach(attempt, None, between, stack)


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
    return table_of(rows, ("prompt", "chosen", "rejected"))


def reward_config(attempt: Attempt, stack: Stack) -> RewardConfig:
    training = attempt.spec.training
    assert isinstance(training, Reward)
    return RewardConfig(**build_common_arguments(attempt) | {"max_length": training.max_length} | stack.base.arguments())
