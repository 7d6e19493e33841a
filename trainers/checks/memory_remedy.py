"""What to change so that a run fits into a device: what costs time alone first, then adapters, then adapters on 4-bit weights."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from trainers.catalog.entries import entries_for
from trainers.checks.model_facts import ModelFacts
from trainers.checks.model_memory import computes_in_half, estimate_training_memory
from trainers.checks.model_settings import find_suited_rate
from trainers.contract import stacking
from trainers.contract.hyperparameters import KTO, GroupRollouts, Optimised
from trainers.contract.problems import SpecError
from trainers.contract.spec import RunSpec, parse_spec

RANK, ALPHA = 16, 32


@dataclass(frozen=True)
class MemoryRemedy:
    """``words``: what it is; ``changes``: setting of the spec → value; ``low`` and ``high``: bytes of what the run then takes."""

    words: str
    changes: dict[str, Any]
    low: int
    high: int


def find_memory_remedy(facts: ModelFacts, spec: RunSpec, prompt_tokens: int, device_memory: int, can_quantize: bool) -> MemoryRemedy | None:
    """The least of the changes after which the whole estimate is within ``device_memory`` bytes; None where none of them does, or none is needed."""
    now = estimate_training_memory(facts, spec, prompt_tokens, device_memory)
    if not device_memory or not now or now[-1].high <= device_memory:
        return None
    for words, changes in list_changes(spec, can_quantize):
        try:
            changed = change_spec(spec, changes)
        except SpecError:
            continue
        total = estimate_training_memory(facts, changed, prompt_tokens, device_memory)[-1]
        if total.high <= device_memory and not stacking.check_stack(changed, entries_for(changed)).problems:
            return MemoryRemedy(words, changes, total.low, total.high)
    return None


def list_changes(spec: RunSpec, can_quantize: bool) -> Iterator[tuple[str, dict[str, Any]]]:
    """Words and changes; each of adapters with every smaller batch."""
    for how, adapters in list_adapters(spec, can_quantize):
        for words, changes in list_batches(spec):
            named = [*([how] if how else []), *words]
            if named:
                yield (f"{named[0]} with {' and '.join(named[1:])}" if how and words else " and ".join(named)), adapters | changes


def list_adapters(spec: RunSpec, can_quantize: bool) -> Iterator[tuple[str, dict[str, Any]]]:
    yield "", {}
    if not isinstance(spec.training, Optimised) or (spec.lora is not None and spec.lora.quantize):
        return
    changes: dict[str, Any] = {}
    if spec.lora is None:
        changes = {"lora.r": RANK, "lora.alpha": ALPHA, "training.learning_rate": find_suited_rate(spec.training.trainer, adapters=True)}
        yield f"LoRA r={RANK}", changes
    if can_quantize and computes_in_half(spec):
        yield f"QLoRA r={spec.lora.r if spec.lora else RANK}", changes | {"lora.quantize": True}


def list_batches(spec: RunSpec) -> Iterator[tuple[list[str], dict[str, Any]]]:
    """As it is, with recomputed activations, then with smaller forward passes too. An optimiser step keeps its sequences, a generation batch its
    completions."""
    training = spec.training
    yield [], {}
    if not isinstance(training, Optimised):
        return
    changes: dict[str, Any] = {}
    words: list[str] = []
    if not training.gradient_checkpointing:
        changes, words = {"training.gradient_checkpointing": True}, ["gradient checkpointing"]
        yield words, changes
    size, times = training.per_device_train_batch_size, 1
    while size % 2 == 0 and size // 2 >= (2 if isinstance(training, KTO) else 1):
        size, times = size // 2, times * 2
        smaller = {
            "training.per_device_train_batch_size": size,
            "training.gradient_accumulation_steps": training.gradient_accumulation_steps * times,
        }
        if isinstance(training, GroupRollouts) and training.steps_per_generation is not None:
            smaller["training.steps_per_generation"] = training.steps_per_generation * times
        yield [*words, f"{size} sequence{'s' if size > 1 else ''} per forward pass"], changes | smaller


def change_spec(spec: RunSpec, changes: dict[str, Any]) -> RunSpec:
    """The spec with other values. Raises SpecError."""
    data = spec.model_dump(mode="json")
    for path, value in changes.items():
        *parts, last = path.split(".")
        place = data
        for part in parts:
            if place.get(part) is None:
                place[part] = {}
            place = place[part]
        place[last] = value
    return parse_spec(data)
