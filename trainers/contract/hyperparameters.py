"""Hyperparameters of each trainer: written once here, read by the browser form, the command line and TRL's configs.

Defaults are the ones the built-in tiny policy learns with on two CPU cores. ``advanced`` fields are folded away in the form.
"""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from trainers.contract.problems import Contradiction, Problem


class Strict(BaseModel):
    """Unknown keys are errors: a mistyped hyperparameter must not silently train with the default. Numbers are finite."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


def param(default: Any, help: str, *, title: str = "", advanced: bool = False, unit: str = "", **bounds: Any) -> Any:
    """A field with its help, bounds (pydantic's gt, ge, lt, le) and how a form should show it."""
    extra: dict[str, Any] = {"advanced": advanced}
    if unit:
        extra["unit"] = unit
    return Field(default, description=help, title=title or None, json_schema_extra=extra, **bounds)


class Common(Strict):
    max_steps: int = param(150, "How many optimiser steps to train.", title="Steps", ge=1, le=10_000_000)
    learning_rate: float = param(3e-4, "Peak learning rate of AdamW.", title="Learning rate", gt=0, le=1)
    warmup_steps: int = param(
        5,
        "Steps over which the learning rate rises from 0; unless set, at most a tenth of a run given its own number of steps.",
        title="Warm-up steps",
        advanced=True,
        ge=0,
    )
    lr_scheduler_type: Literal["constant_with_warmup", "linear", "cosine"] = param(
        "constant_with_warmup", "How the learning rate goes on after the warm-up.", title="Schedule", advanced=True
    )
    per_device_train_batch_size: int = param(32, "Sequences in one forward pass on one device.", title="Batch per device", ge=1, le=65_536)
    gradient_accumulation_steps: int = param(1, "Forward passes summed into one optimiser step.", title="Gradient accumulation", advanced=True, ge=1)
    max_grad_norm: float = param(1.0, "The gradient is scaled down to this norm.", title="Gradient clipping", advanced=True, gt=0)
    weight_decay: float = param(0.0, "Decoupled weight decay of AdamW.", title="Weight decay", advanced=True, ge=0, le=1)
    adam_beta2: float = param(0.98, "Decay of AdamW's second moment.", title="Adam beta 2", advanced=True, gt=0, lt=1)
    gradient_checkpointing: bool = param(False, "Recompute activations to save memory; slower.", title="Gradient checkpointing", advanced=True)

    @model_validator(mode="before")
    @classmethod
    def shorten_default_warmup(cls, data: Any) -> Any:
        """A short run that says nothing about its warm-up spends a tenth of its steps on it, never more than the default."""
        if not isinstance(data, dict) or "warmup_steps" in data:
            return data
        try:
            tenth = int(data["max_steps"]) // 10
        except (KeyError, TypeError, ValueError, OverflowError):  # missing or wrong: the field itself says so
            return data
        default = cls.model_fields["warmup_steps"].default
        return {**data, "warmup_steps": tenth} if 0 <= tenth < default else data

    @model_validator(mode="after")
    def warmup_fits(self) -> "Common":
        if self.warmup_steps > self.max_steps:
            fix = f"use at most max_steps, {self.max_steps}"
            raise Contradiction(Problem("warmup_steps", self.warmup_steps, "the warm-up is longer than the run", fix))
        return self


class SFT(Common):
    """Supervised fine-tuning on demonstrations; the loss counts completion tokens only."""

    trainer: Literal["sft"] = "sft"
    max_steps: int = param(600, "How many optimiser steps to train.", title="Steps", ge=1, le=10_000_000)
    learning_rate: float = param(3e-3, "Peak learning rate of AdamW.", title="Learning rate", gt=0, le=1)
    warmup_steps: int = param(
        20,
        "Steps over which the learning rate rises from 0; unless set, at most a tenth of a run given its own number of steps.",
        title="Warm-up steps",
        advanced=True,
        ge=0,
    )
    weight_decay: float = param(0.01, "Decoupled weight decay of AdamW.", title="Weight decay", advanced=True, ge=0, le=1)
    demonstrations: int = param(20_000, "Demonstrations drawn from the task; ignored when a dataset is given.", ge=1, le=10_000_000)
    max_length: int = param(128, "Longest prompt and completion together; longer rows are cut.", title="Longest sequence", unit="tokens", ge=8)


class GRPO(Common):
    """Group relative policy optimisation (DeepSeekMath, arXiv 2402.03300) as TRL's GRPOTrainer runs it; the base says loss and advantages."""

    trainer: Literal["grpo"] = "grpo"
    per_device_train_batch_size: int = param(64, "Completions in one forward pass on one device.", title="Batch per device", ge=1, le=65_536)
    num_generations: int = param(8, "Completions sampled for each prompt (the group size G).", title="Group size", ge=2, le=4096)
    max_completion_length: int = param(40, "A completion is cut off after this many tokens.", title="Longest completion", unit="tokens", ge=1)
    temperature: float = param(1.0, "Sampling temperature of the rollouts.", title="Temperature", gt=0, le=10)
    beta: float = param(0.0, "Weight of the KL penalty to the reference policy; 0 loads no reference.", title="KL weight (beta)", ge=0, le=100)
    epsilon: float = param(0.2, "The importance ratio is clipped to [1 - epsilon, 1 + epsilon].", title="Clip range", advanced=True, gt=0, lt=1)
    num_iterations: int = param(1, "Optimiser passes over each generation batch (mu).", title="Passes per batch", advanced=True, ge=1, le=64)
    steps_per_generation: int | None = param(
        None, "Micro-batches sampled at once; empty means the gradient accumulation.", title="Micro-batches per generation", advanced=True, ge=1
    )
    prompts: int = param(4000, "Training prompts drawn from the task; ignored when a dataset is given.", advanced=True, ge=1, le=10_000_000)
    use_vllm: bool = param(False, "Generate with vLLM (needs a CUDA worker with vllm installed).", title="Generate with vLLM", advanced=True)

    def generation_batch_size(self, devices: int = 1) -> int:
        """Completions sampled together: batch per device x micro-batches per generation x devices."""
        return self.per_device_train_batch_size * (self.steps_per_generation or self.gradient_accumulation_steps) * devices

    def prompts_per_batch(self, devices: int = 1) -> int:
        """Different prompts in one generation batch."""
        return self.generation_batch_size(devices) // self.num_generations

    @model_validator(mode="after")
    def groups_fit(self) -> "GRPO":
        size, group = self.generation_batch_size(), self.num_generations
        micro, accumulated = self.steps_per_generation or self.gradient_accumulation_steps, self.gradient_accumulation_steps
        problems = []
        if size % group:
            message = f"does not divide the generation batch of {size} completions"
            problems.append(Problem("num_generations", group, message, group_fix(size, group)))
        if micro % accumulated and accumulated % micro:
            message = f"an optimiser step of {accumulated} micro-batches would end inside a generation batch of {micro}"
            fix = f"use a multiple or a divisor of gradient_accumulation_steps, {accumulated}"
            problems.append(Problem("steps_per_generation", micro, message, fix))
        if problems:
            raise Contradiction(*problems)
        return self


def group_fix(size: int, group: int) -> str:
    """The nearest batch that ``group`` divides, and the nearest group size that divides the batch ``size``."""
    batch = max(group, round(size / group) * group)
    divisors = [count for count in range(2, size + 1) if size % count == 0]
    nearest = min(divisors, key=lambda count: abs(count - group), default=0)
    return f"make the generation batch {batch}" + (f", or use groups of {nearest}" if nearest else "")


class Preferences(Common):
    """What every trainer on preferences shares: pairs from a dataset, or answers of the policy's own that the task ranks."""

    max_steps: int = param(120, "How many optimiser steps to train.", title="Steps", ge=1, le=10_000_000)
    learning_rate: float = param(1e-4, "Peak learning rate of AdamW.", title="Learning rate", gt=0, le=1)
    sampled_prompts: int = param(1500, "Prompts whose answers are sampled and paired, right against wrong; ignored when a dataset is given.", ge=1)
    samples_per_prompt: int = param(4, "Answers sampled for each of these prompts.", advanced=True, ge=2, le=256)
    max_completion_length: int = param(40, "A sampled answer is cut off after this many tokens.", title="Longest completion", unit="tokens", ge=1)
    temperature: float = param(1.0, "Sampling temperature of the answers.", title="Temperature", advanced=True, gt=0, le=10)
    label_noise: float = param(
        0.0, "Share of pairs whose chosen and rejected answers are swapped, to study noisy labels.", title="Label noise", advanced=True, ge=0, le=0.5
    )
    max_length: int = param(
        128, "Longest prompt and answer together; longer rows are cut.", title="Longest sequence", unit="tokens", advanced=True, ge=8
    )

    @model_validator(mode="after")
    def answers_fit(self) -> "Preferences":
        if self.max_completion_length >= self.max_length:
            message = f"leaves no room for the prompt in sequences of max_length {self.max_length}"
            raise Contradiction(Problem("max_completion_length", self.max_completion_length, message, f"use less than {self.max_length}"))
        return self


class DPO(Preferences):
    """Direct preference optimisation (arXiv 2305.18290) on pairs from a dataset, or on pairs sampled from the policy and ranked by the task."""

    trainer: Literal["dpo"] = "dpo"
    beta: float = param(0.1, "How strongly the policy is held to the reference; smaller moves further.", title="Beta", gt=0, le=100)


class KTO(Preferences):
    """Kahneman-Tversky optimisation (arXiv 2402.01306): single answers marked good or bad, from a dataset or sampled and judged by the task."""

    trainer: Literal["kto"] = "kto"
    per_device_train_batch_size: int = param(32, "Answers in one forward pass on one device.", title="Batch per device", ge=2, le=65_536)
    beta: float = param(0.1, "How strongly the policy is held to the reference; smaller moves further.", title="Beta", gt=0, le=100)


class Reward(Preferences):
    """A reward model on preference pairs (Bradley-Terry, arXiv 2203.02155): the policy's network with one number in place of the vocabulary."""

    trainer: Literal["reward"] = "reward"


TRAINERS: dict[str, type[Common]] = {"sft": SFT, "grpo": GRPO, "dpo": DPO, "kto": KTO, "reward": Reward}
