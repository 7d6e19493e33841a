"""On-policy distillation on TRL's experimental GKDTrainer, with every answer that the policy samples kept.

TRL draws for each micro-batch whose answers it trains on: the policy's, the demonstrations', or the teacher's in their place. The statistics of a
sampled answer are those of the loss's own forward pass, at temperature 1. Where the rows are of the task, its reward functions score the answers;
training does not look at that.

Methods may change gradients; the loss is TRL's.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from datasets import Dataset
from torch import Tensor
from trl.experimental.gkd import GKDConfig, GKDTrainer

from trainers.adapters.alternatives import AlternativesRecorder
from trainers.adapters.arguments import build_common_arguments
from trainers.adapters.dpo import RowNumberCollator
from trainers.adapters.online_dpo import compute_entropies
from trainers.adapters.passes import copy_planes_to_host
from trainers.adapters.resumable import Resumable
from trainers.adapters.rollouts import build_events
from trainers.adapters.tables import ROW
from trainers.attempt.callbacks import BetweenSteps
from trainers.attempt.context import Attempt
from trainers.attempt.evaluate import HeldOut
from trainers.attempt.teacher import load_teacher
from trainers.attempt.telemetry import Scored
from trainers.contract.events import Message
from trainers.contract.hyperparameters import GKD
from trainers.judges import rewards
from trainers.methods.stack import Stack
from trainers.policies.loading import build_lora_config


class GKDAdapter(Resumable, GKDTrainer):  # type: ignore[misc]
    data_collator: Any

    def __init__(self, attempt: Attempt, rows: Sequence[dict[str, Any]], heldout: HeldOut | None, stack: Stack) -> None:
        """``rows``: prompt and completion, each a list of messages."""
        training, spec = attempt.spec.training, attempt.spec
        assert isinstance(training, GKD)
        self.rows = list(rows)
        self.examples = [] if spec.dataset else attempt.task.examples("train", training.demonstrations, spec.seed, spec.task.difficulty)
        self.written_by = ""  # policy or teacher: the answers of the micro-batch; empty: those of the rows
        self.place = (0, 0)  # the step, and how many of its micro-batches were trained on
        between = BetweenSteps()
        super().__init__(
            model=attempt.policy.model,
            teacher_model=load_teacher(attempt),
            processing_class=attempt.policy.tokenizer,
            args=gkd_config(attempt, stack),
            train_dataset=build_message_dataset(rows),
            callbacks=[between],
            peft_config=build_lora_config(spec.lora) if spec.lora else None,
        )
        self.data_collator = RowNumberCollator(self.data_collator)
        self.alternatives = AlternativesRecorder(spec.telemetry, spec.seed)
        self.attach(attempt, heldout, between, stack)

    def training_step(self, model: Any, inputs: dict[str, Any], num_items_in_batch: Any = None) -> Tensor:
        step = self.state.global_step + 1
        number = self.place[1] if self.place[0] == step else 0
        self.place = (step, number + 1)
        self.first_group = number * self.args.per_device_train_batch_size
        self.written_by = ""
        loss: Tensor = super().training_step(model, inputs, num_items_in_batch)
        metrics = self._metrics["train"]
        metrics["gkd/on_policy"].append(float(self.written_by == "policy"))
        metrics["gkd/teacher_written"].append(float(self.written_by == "teacher"))
        return loss

    def generate_on_policy_outputs(self, model: Any, inputs: dict[str, Any], generation_config: Any) -> Any:  # type: ignore[override]
        self.written_by = "teacher" if model is self.accelerator.unwrap_model(self.teacher_model) else "policy"
        return GKDTrainer.generate_on_policy_outputs(model, inputs, generation_config)

    def compute_loss(self, model: Any, inputs: dict[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None) -> Any:
        loss, outputs = super().compute_loss(model, inputs, True, num_items_in_batch)
        there = inputs["labels"][:, 1:] != -100
        entropies = compute_entropies(outputs.logits[:, :-1].detach()) * there
        self._total_train_tokens += int(inputs["attention_mask"].sum())
        self._metrics["train"]["entropy"].append(float(entropies.sum() / there.sum().clamp(min=1)))
        if self.written_by == "policy":
            self.report(inputs, outputs.logits[:, :-1].detach(), entropies)
        return (loss, outputs) if return_outputs else loss

    @torch.no_grad()
    def report(self, inputs: dict[str, Any], logits: Tensor, entropies: Tensor) -> None:
        """Hands the sampled answers to the writer's thread, with one copy from the device. ``logits`` (B, L - 1, V), ``entropies`` (B, L - 1)."""
        keep = inputs["input_ids"].shape[1] - inputs["prompts"].shape[1]
        ids, there = inputs["input_ids"][:, -keep:], inputs["labels"][:, -keep:] != -100
        chosen = logits[:, -keep:]
        logprobs = torch.stack([torch.log_softmax(row.float(), -1).gather(1, own[:, None])[:, 0] for row, own in zip(chosen, ids, strict=True)])
        step, places = self.place[0], range(len(ids))
        self.alternatives.begin(step, [self.first_group + place for place in places], scored_next=False)
        self.alternatives.read_logits(torch.arange(len(ids), device=ids.device), chosen, ids, there, keep)
        arrays = copy_planes_to_host({"logprobs": logprobs * there, "entropies": entropies[:, -keep:]})
        own = [row[:length] for row, length in zip(ids.tolist(), there.sum(1).tolist(), strict=True)]
        texts = self.processing_class.batch_decode(own, skip_special_tokens=True)
        numbers = inputs[ROW].tolist()
        answered = [(text, self.examples[number]) for text, number in zip(texts, numbers, strict=True)] if self.examples else []
        scores = self.attempt.columns.score_rows(answered, step) if answered else [{}] * len(texts)
        scored = [self.scored(place, number, own[place], texts[place], scores[place]) for place, number in enumerate(numbers)]
        self.attempt.reporter.later(partial(build_events, scored, arrays, self.attempt.pieces, self.attempt.reporter.stamp()))
        self.log_rewards(scored)

    def scored(self, place: int, number: int, ids: list[int], text: str, score: dict[str, float | None]) -> Scored:
        """One answer to the prompt of row ``number``."""
        example = self.examples[number] if self.examples else None
        eos = self.generation_config.eos_token_id
        return Scored(
            step=self.place[0],
            phase="train",
            group=self.first_group + place,
            sample=0,
            prompt=[Message(message["role"], message["content"]) for message in self.rows[number]["prompt"]],
            reference=example.reference if example else "",
            text=text,
            rewards=score,
            reward=rewards.weighted_sum(score, self.attempt.weights) if example else None,
            finish_reason="stop" if ids and ids[-1] in (eos if isinstance(eos, list) else [eos]) else "length",
            ids=ids,
            alternatives=self.alternatives.found.get(place),
        )

    def log_rewards(self, scored: Sequence[Scored]) -> None:
        """Means over the sampled answers of the micro-batch; nothing of what no function has an opinion on."""
        metrics = self._metrics["train"]
        known = {"reward": [one.reward for one in scored]} | {
            f"rewards/{name}/mean": [one.rewards.get(name) for one in scored] for name in (self.attempt.task.rewards if self.examples else ())
        }
        for name, found in known.items():
            if values := [value for value in found if value is not None]:
                metrics[name].append(sum(values) / len(values))
        metrics["completions/mean_length"].append(sum(len(one.ids) for one in scored) / len(scored))
        metrics["completions/clipped_ratio"].append(sum(one.finish_reason == "length" for one in scored) / len(scored))


def build_message_dataset(rows: Sequence[dict[str, Any]]) -> Dataset:
    """Whole conversations, as TRL's collator wants them, and the rows' numbers: the last message is the answer."""
    found = [[{"role": message["role"], "content": message["content"]} for message in (*row["prompt"], *row["completion"])] for row in rows]
    return Dataset.from_dict({"messages": found, ROW: list(range(len(rows)))})


def gkd_config(attempt: Attempt, stack: Stack) -> GKDConfig:
    training = attempt.spec.training
    assert isinstance(training, GKD)
    settings: dict[str, Any] = {
        **build_common_arguments(attempt),
        "max_length": training.max_length,
        "max_new_tokens": training.max_completion_length,
        "temperature": training.temperature,
        "packing": False,
    }
    return GKDConfig(**settings | stack.base.arguments())
