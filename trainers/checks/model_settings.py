"""Settings that suit the built-in policy and not a model of the hub: warned about with a value that does, where nobody has changed them.

Learning rates are the defaults of TRL 1.16's configs of these trainers for training all weights; adapters take ten times as much (Schulman et al.,
LoRA Without Regret, 2025, and TRL's guide of that name). Lengths are GRPOConfig's max_completion_length and DPOConfig's max_length.
"""

from __future__ import annotations

from collections.abc import Iterator

from trainers.checks.model_facts import ModelFacts
from trainers.contract.hyperparameters import GroupRollouts, Optimised, Preferences, Rollouts
from trainers.contract.problems import Problem
from trainers.contract.spec import RunSpec
from trainers.contract.suggestions import Remedy, Suggestion

LEARNING_RATES = {
    "sft": 2e-5,
    "grpo": 1e-6,
    "rloo": 1e-6,
    "dpo": 1e-6,
    "kto": 1e-6,
    "orpo": 1e-6,
    "cpo": 1e-6,
    "online-dpo": 5e-7,
    "gkd": 2e-5,
    "reward": 1e-4,
}
ADAPTERS_TIMES = 10
TOO_HIGH = 10  # times the recommended rate: nobody's choice of a rate is questioned below
COMPLETION, SEQUENCE = 512, 1024
SMALL = 20_000_000  # parameters; below, the built-in policy's settings may well suit
BATCHES = ((1_000_000_000, 8), (3_500_000_000, 4))  # parameters → sequences per forward pass that suit smaller models; larger ones get LARGE_BATCH
LARGE_BATCH = 2


def find_unsuitable_settings(spec: RunSpec, facts: ModelFacts | None, prompt_tokens: int) -> list[Problem]:
    """Warnings, each with its suggestion. ``facts`` None: a model of the hub that could not be looked up."""
    if facts is not None and facts.parameters is not None and facts.parameters < SMALL:
        return []
    context = facts.context if facts else None
    batch = check_batch(spec, facts.parameters) if facts is not None and facts.parameters is not None else ()
    return [*check_learning_rate(spec), *check_completion_length(spec, context, prompt_tokens), *batch]


def find_suited_rate(trainer: str, adapters: bool) -> float:
    return float(f"{LEARNING_RATES[trainer] * (ADAPTERS_TIMES if adapters else 1):g}")


def check_learning_rate(spec: RunSpec) -> Iterator[Problem]:
    if not isinstance(spec.training, Optimised):
        return
    rate, trainer = spec.training.learning_rate, spec.training.trainer
    suited = find_suited_rate(trainer, adapters=spec.lora is not None)
    default = type(spec.training).model_fields["learning_rate"].default
    if rate <= suited or (rate != default and rate <= TOO_HIGH * suited):
        return
    how = "with LoRA adapters" if spec.lora else "with all weights trained"
    reason = "is the default for the built-in policy, and high for" if rate == default else "is high for"
    message = f"{rate:g} {reason} a model of this size {how}: training may diverge"
    yield Suggestion("training.learning_rate", rate, message, f"use about {suited:g}", suggestion=suited)


def find_suited_batch(parameters: int) -> int:
    """Sequences per forward pass. Larger ones are hardly quicker: a GPU is busy with so many tokens of a model of that size."""
    return next((batch for most, batch in BATCHES if parameters < most), LARGE_BATCH)


def check_batch(spec: RunSpec, parameters: int) -> Iterator[Problem]:
    """Smaller forward passes with as many of them in a step, so that a step trains on what it did."""
    training, field = spec.training, "training.per_device_train_batch_size"
    now, suited = training.per_device_train_batch_size, find_suited_batch(parameters)
    if (
        not isinstance(training, Optimised)
        or now != type(training).model_fields["per_device_train_batch_size"].default
        or now <= suited
        or now % suited
    ):
        return
    accumulated = training.gradient_accumulation_steps * now // suited
    changes: dict[str, int | bool] = {field: suited, "training.gradient_accumulation_steps": accumulated}
    if isinstance(training, GroupRollouts) and training.steps_per_generation is not None:
        changes["training.steps_per_generation"] = training.steps_per_generation * now // suited
    if parameters >= BATCHES[0][0] and not training.gradient_checkpointing:
        changes["training.gradient_checkpointing"] = True
    fix = f"use {suited} with gradient accumulation {accumulated}, which trains on the same sequences a step"
    label = f"Use {suited} × {accumulated}" + (" with gradient checkpointing" if len(changes) > 2 else "")
    yield Remedy(field, now, f"{now} sequences at once suit the built-in policy", fix, label=label, changes=changes)


def check_completion_length(spec: RunSpec, context: int | None, prompt_tokens: int) -> Iterator[Problem]:
    """Nothing for SFT and for datasets of preferences: there the lengths of the rows decide, and are checked."""
    training = spec.training
    if not isinstance(training, Rollouts | Preferences) or (isinstance(training, Preferences) and spec.dataset is not None):
        return
    fields = type(training).model_fields
    room = COMPLETION if context is None else min(COMPLETION, (context - prompt_tokens) // 2)
    if training.max_completion_length == fields["max_completion_length"].default and room > training.max_completion_length:
        message = f"{training.max_completion_length} tokens suit the built-in policy; a chat model's answers are longer and would be cut off"
        yield Suggestion("training.max_completion_length", training.max_completion_length, message, f"use about {room}", suggestion=room)
    whole = SEQUENCE if context is None else min(SEQUENCE, context)
    if isinstance(training, Preferences) and training.max_length == fields["max_length"].default and whole > training.max_length:
        message = f"{training.max_length} tokens for prompt and answer suit the built-in policy"
        yield Suggestion("training.max_length", training.max_length, message, f"use about {whole}", suggestion=whole)
