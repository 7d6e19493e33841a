"""Supervised fine-tuning on TRL's SFTTrainer, with the hooks of the run's methods; the loss counts completion tokens only."""

import random
from collections.abc import Sequence
from itertools import islice
from typing import Any

from torch import Tensor
from trl import SFTConfig, SFTTrainer

from trainers.adapters.arguments import build_common_arguments
from trainers.adapters.dpo import RowNumberCollator
from trainers.adapters.micro_batch import log_weights
from trainers.adapters.recorder import record_outputs
from trainers.adapters.resumable import Resumable
from trainers.adapters.tables import ROW, table_of
from trainers.attempt.callbacks import BetweenSteps
from trainers.attempt.context import Attempt
from trainers.attempt.evaluate import HeldOut
from trainers.contract.events import Message
from trainers.contract.hyperparameters import SFT
from trainers.maths.reduce import masked_mean
from trainers.methods.batch import TokenBatch
from trainers.methods.stack import Stack
from trainers.policies.loading import build_lora_config
from trainers.policies.sampling import as_rows, chat_ids
from trainers.tasks.base import Task
from trainers.worlds.base import Said, World
from trainers.worlds.windows import WindowWorld

TOKENIZED = ("input_ids", "completion_mask")


class SFTAdapter(Resumable, SFTTrainer):  # type: ignore[misc]
    data_collator: Any
    _signature_columns: list[str]

    def __init__(self, attempt: Attempt, rows: Sequence[dict[str, Any]], heldout: HeldOut | None, stack: Stack) -> None:
        """``rows``: prompt and completion, each a list of messages, or both as ``TOKENIZED``; more columns are for methods."""
        training = attempt.spec.training
        assert isinstance(training, SFT)
        self.rows = list(rows)
        between = BetweenSteps()
        order = {"train_sampling_strategy": "sequential"} if any(method.ordered for method in stack.methods) else {}
        settings = {"max_length": training.max_length, "packing": False, "completion_only_loss": True, **order}
        super().__init__(
            model=attempt.policy.model,
            processing_class=attempt.policy.tokenizer,
            args=SFTConfig(**build_common_arguments(attempt) | settings | stack.base.arguments()),
            train_dataset=table_of(rows, TOKENIZED if rows and TOKENIZED[0] in rows[0] else ("prompt", "completion"), numbered=True),
            callbacks=[between],
            peft_config=build_lora_config(attempt.spec.lora) if attempt.spec.lora else None,
        )
        self.data_collator = RowNumberCollator(self.data_collator)
        self.attach(attempt, heldout, between, stack)

    def _set_signature_columns_if_needed(self) -> None:
        super()._set_signature_columns_if_needed()
        if ROW not in self._signature_columns:
            self._signature_columns = [*self._signature_columns, ROW]

    def compute_loss(self, model: Any, inputs: dict[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None) -> Any:
        numbers = inputs.pop(ROW).tolist()
        if not self.stack.fills("sft_weights", "loss"):
            return super().compute_loss(model, inputs, return_outputs, num_items_in_batch)
        with record_outputs(model) as outputs:
            loss: Tensor = super().compute_loss(model, inputs, False, num_items_in_batch)
        batch = self.batch_of(numbers, inputs, outputs[0])
        weights: Tensor | None = None
        for method in self.stack.filling("sft_weights"):
            if (found := method.sft_weights(batch)) is not None:
                log_weights(method, found, batch.mask)
                weights = found.detach() if weights is None else weights * found.detach()
        # Each process divides its sum by the tokens of all, and DDP takes the mean of the processes: their number makes it the mean over all tokens.
        everywhere = None if num_items_in_batch is None else num_items_in_batch / self.accelerator.num_processes
        if weights is not None:
            loss = -masked_mean(weights * batch.logprobs, batch.mask, everywhere)
        for method in self.stack.filling("loss"):
            if (term := method.loss(batch)) is not None:
                slices = self.current_gradient_accumulation_steps
                count = None if everywhere is None else everywhere / slices
                term = masked_mean(term, batch.mask, count) if term.dim() == 2 else term
                method.log("loss", term)
                loss = loss + term / slices
        return loss

    def batch_of(self, numbers: list[int], inputs: dict[str, Any], output: Any) -> TokenBatch:
        length = inputs["input_ids"].shape[1] - 1
        return TokenBatch(
            rows=[self.rows[number] for number in numbers],
            ids=inputs["input_ids"][:, 1:],
            mask=(inputs["labels"][:, 1:] != -100).float(),
            logprobs=output.log_probs[:, -length:],
            entropies=output.entropy[:, -length:],
            step=int(self.state.global_step) + 1,
            total_steps=self.args.max_steps,
            model_inputs={name: inputs[name] for name in ("input_ids", "attention_mask") if name in inputs},
        )


def build_demonstrations(task: Task, count: int, seed: int, difficulty: str, tokenizer: Any) -> list[dict[str, Any]]:
    """Rows of the task's demonstrations, of the quality the task says they have. Those of a world are tokenized by turns, each context as a row."""
    rng = random.Random(seed)
    examples = task.draw_demonstrations(count, seed, difficulty)
    if isinstance(task, WindowWorld):
        contexts = (context for example in examples for context in task.draw_contexts(example, rng))
        return [tokenize_turns(prompt, said, tokenizer) for prompt, said in islice(contexts, count)]
    if isinstance(task, World):
        return [tokenize_turns(example.prompt, task.turns(example, rng), tokenizer) for example in examples]
    return [
        {
            "prompt": as_rows(example.prompt),
            "completion": [{"role": "assistant", "content": task.demonstration(example, rng)}],
        }
        for example in examples
    ]


def tokenize_turns(prompt: Sequence[Message], said: Sequence[Said], tokenizer: Any) -> dict[str, Any]:
    """The pieces of an episode encoded one by one, as they are while it is sampled. What the world says is context, not in the loss: else the policy
    would learn to write its results itself.
    """
    ids = list(chat_ids(tokenizer, [prompt])[0])
    mask = [0] * len(ids)
    for piece in said:
        more = tokenizer.encode(piece.text, add_special_tokens=False)
        ids += more
        mask += [int(piece.seat != "")] * len(more)
    completion = [{"role": "assistant", "content": "".join(piece.text for piece in said)}]
    return {"prompt": as_rows(prompt), "completion": completion, "input_ids": [*ids, tokenizer.eos_token_id], "completion_mask": [*mask, 1]}
