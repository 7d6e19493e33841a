"""An estimate of the memory that training a model takes on one device, as a range: what does not depend on the data, and what a batch adds."""

from __future__ import annotations

from dataclasses import dataclass

from trainers.catalog.entries import entries_for
from trainers.checks.model_facts import ModelFacts, Shape
from trainers.contract.hyperparameters import (
    CPO,
    DPO,
    GKD,
    KTO,
    ORPO,
    Demonstrated,
    GroupRollouts,
    OnlineDPO,
    Optimised,
    Pairs,
    Preferences,
    Reward,
    Rollouts,
)
from trainers.contract.memory import TOTAL, MemoryPart
from trainers.contract.spec import Lora, RunSpec

FULL, HALF = 4, 2  # bytes of a number
QUARTER = 0.516  # bytes of a weight in 4 bits with its doubly quantised constants: 4.127 bits (QLoRA, arXiv 2305.14314, section 3)
SPARE = 1.1  # blocks that the allocator cannot use
TILE = (4096, 32_768)  # tokens and vocabulary that TRL 1.16's fused head multiplies at once
VLLM_SHARE = 0.3  # of the GPU, which TRL's vLLM reserves (vllm_gpu_memory_utilization)


@dataclass(frozen=True)
class Lengths:
    """Tokens of a sequence and, of these, of its completion: ``low`` and ``high``."""

    sequence: tuple[float, float]
    completion: tuple[float, float]


def estimate_training_memory(facts: ModelFacts, spec: RunSpec, prompt_tokens: int, device_memory: int = 0) -> list[MemoryPart]:
    """The parts, their sum last; none where parameters or sizes are not known. ``device_memory``: bytes of the device, where it is known.

    Weights, gradients and the two moments of AdamW in fp32 are 4 + 4 + 8 bytes a parameter (ZeRO, arXiv 1910.02054, section 3.1; the trainers keep
    fp32 weights and compute in bf16 by autocast, which keeps a bf16 copy of every matrix until the backward pass). Under LoRA the weights are frozen,
    in bf16 on a GPU, and only r x (in + out) parameters of each linear layer are trained (arXiv 2106.09685); with QLoRA (arXiv 2305.14314) the
    matrices of the layers have 4 bits, the rest and the adapters are bf16. A reference policy is one more copy of the weights; adapters are switched
    off in its place. ``estimate_activations`` says what a layer keeps, ``estimate_head`` what the fused head does. The KV cache has 2 x layers x
    key-value width numbers a token. Sampling and training follow each other: the larger counts. ``low`` takes completions of half the length
    allowed, ``high`` whole ones and a tenth for the allocator. A procedure has weights and KV cache alone. The CUDA context (about half a GiB) and
    methods that keep copies are left out.
    """
    if facts.parameters is None or facts.shape is None:
        return []
    shape = facts.shape
    states = estimate_states(facts.parameters, shape, spec)
    lengths = find_lengths(spec, prompt_tokens)
    batch = []
    if isinstance(spec.training, Optimised):
        batch = [estimate_working_copies(shape, spec), estimate_activations(shape, spec, lengths), estimate_head(shape, spec, lengths)]
    cache, vllm = estimate_cache(shape, spec, lengths), estimate_vllm(facts.parameters, shape, spec, lengths, device_memory)
    low = sum(part.low for part in states) + max(sum(part.low for part in batch), cache.low) + vllm.low
    high = sum(part.high for part in states) + max(sum(part.high for part in batch), cache.high)
    total = MemoryPart(TOTAL, low, round(high * SPARE) + vllm.high, "the states, vLLM, and the larger of the KV cache or what a batch adds")
    return [part for part in (*states, *batch, cache, vllm) if part.high] + [total]


def computes_in_half(spec: RunSpec) -> bool:
    """As far as one can say before a device is known: auto is bf16 on the GPUs that models of a hub need."""
    return spec.precision == "bf16" or (spec.precision == "auto" and spec.device != "cpu")


def estimate_states(parameters: int, shape: Shape, spec: RunSpec) -> list[MemoryPart]:
    """Weights, gradients, moments and reference: the same at every step."""
    trained, width, words = parameters, FULL, "parameters"
    if spec.lora is None:
        weights = part_of("weights", parameters * FULL, "parameters × 4 bytes (fp32)")
        if not isinstance(spec.training, Optimised):
            return [weights]
    else:
        trained, words = count_adapter_parameters(shape, spec.lora.r), "adapters' parameters"
        width = HALF if spec.lora.quantize else FULL  # TRL has the adapters of quantised weights in bf16
        weights = estimate_frozen_weights(parameters, shape, spec.lora, trained * width, spec)
    training = spec.training
    refers = isinstance(training, DPO | KTO | OnlineDPO) or (isinstance(training, GroupRollouts) and training.beta > 0)
    reference = parameters * FULL if (refers and spec.lora is None) or isinstance(training, GKD) else 0  # a teacher of the same size
    return [
        weights,
        part_of("gradients", trained * width, f"{words} × {width} bytes"),
        part_of("optimizer", trained * 2 * width, f"{words} × {2 * width} bytes (two moments of AdamW)"),
        part_of("reference policy", reference, "parameters × 4 bytes"),
    ]


def estimate_frozen_weights(parameters: int, shape: Shape, lora: Lora, adapters: int, spec: RunSpec) -> MemoryPart:
    """Under adapters of ``adapters`` bytes."""
    if lora.quantize:
        matrices = min(count_layer_parameters(shape), parameters)
        size = round(matrices * QUARTER) + (parameters - matrices) * HALF
        return part_of("weights", size + adapters, "matrices of the layers × 0.516 bytes (4 bits), the rest × 2, and the adapters' × 2")
    width = HALF if computes_in_half(spec) else FULL
    return part_of("weights", parameters * width + adapters, f"parameters × {width} bytes, and the adapters' × 4")


def part_of(name: str, size: int, formula: str) -> MemoryPart:
    return MemoryPart(name, size, size, formula)


def count_adapter_parameters(shape: Shape, rank: int) -> int:
    """Of adapters on every linear layer: queries, keys, values, output, and a gated feed-forward part."""
    queries, keys = shape.heads * shape.head_width, shape.key_value_heads * shape.head_width
    attention = 2 * (shape.width + queries) + 2 * (shape.width + keys)
    return shape.layers * rank * (attention + 3 * (shape.width + shape.inner))


def count_layer_parameters(shape: Shape) -> int:
    """Of the matrices of all layers, without embeddings and head."""
    queries, keys = shape.heads * shape.head_width, shape.key_value_heads * shape.head_width
    return shape.layers * shape.width * (2 * queries + 2 * keys + 3 * shape.inner)


def find_lengths(spec: RunSpec, prompt_tokens: int) -> Lengths:
    training = spec.training
    if isinstance(training, Rollouts):
        longest = training.max_completion_length
        return Lengths((prompt_tokens + longest / 2, prompt_tokens + longest), (longest / 2, longest))
    assert isinstance(training, Demonstrated | Preferences)
    return Lengths((training.max_length / 2, training.max_length), (training.max_length / 2, training.max_length))


def count_sequences(spec: RunSpec) -> int:
    """Of one forward pass; a pair is two."""
    training = spec.training
    return training.per_device_train_batch_size * (2 if isinstance(training, Pairs | OnlineDPO) else 1)


def estimate_working_copies(shape: Shape, spec: RunSpec) -> MemoryPart:
    """Of matrices in bf16: autocast's, all of them until the backward pass, or where activations are recomputed until the end of the forward pass;
    of 4-bit weights one at a time."""
    name = "weights in bf16"
    if spec.lora is not None and spec.lora.quantize:
        return part_of(name, shape.width * shape.inner * HALF, "one matrix of a layer × 2 bytes")
    if spec.lora is not None or not computes_in_half(spec):
        return part_of(name, 0, "none: they are computed with as they are")
    size = count_layer_parameters(shape) * HALF
    return MemoryPart(name, 0 if recomputes_activations(spec) else size, size, "matrices of the layers × 2 bytes (autocast's copies)")


def estimate_activations(shape: Shape, spec: RunSpec, lengths: Lengths) -> MemoryPart:
    """What the layers keep for the backward pass, a token and layer, with w the width, i that of the feed-forward part, q and k those of queries and
    keys: counted with torch's hooks for saved tensors in transformers 5.23's Llama (low) and Qwen3, which also normalises queries and keys (high).

    bf16 by autocast: 26 w + 8 i + 8 to 14 q + 2 to 6 k bytes; w is 18 times under adapters, where the residual stream is bf16 too. fp32: 24 w + 16 i
    + 16 to 24 q + 0 to 8 k. sdpa keeps a mask of 2 or 4 bytes a pair of tokens, eager attention 3 matrices of that and a head each.
    """
    w, i = shape.width, shape.inner
    q, k = shape.heads * shape.head_width, shape.key_value_heads * shape.head_width
    half, adapted = computes_in_half(spec), spec.lora is not None
    number = HALF if half else FULL
    if half:
        kept = ((18 if adapted else 26) * w + 8 * i + 8 * q + 2 * k, (18 if adapted else 26) * w + 8 * i + 14 * q + 6 * k)
    else:
        kept = (24 * w + 16 * i + 16 * q, 24 * w + 16 * i + 24 * q + 8 * k)
    pairs = (number * 3 * shape.heads if is_eager(spec) else 0, number * (4 * shape.heads if is_eager(spec) else 1))
    stream = w * (HALF if half and adapted else FULL)
    words = "sequences × tokens × layers × what a layer keeps of a token"
    if recomputes_activations(spec):
        words = f"sequences × tokens × layers × width × {stream // w}, and one layer whole"
    sizes = []
    for own, pair, tokens in zip(kept, pairs, lengths.sequence, strict=True):
        layer = own + pair * tokens  # bytes of a token in a layer
        each = stream * shape.layers + layer if recomputes_activations(spec) else layer * shape.layers
        sizes.append(round(count_sequences(spec) * tokens * each))
    return MemoryPart("activations", sizes[0], sizes[1], words)


def recomputes_activations(spec: RunSpec) -> bool:
    return isinstance(spec.training, Optimised) and spec.training.gradient_checkpointing


def is_eager(spec: RunSpec) -> bool:
    return spec.attn_implementation == "eager"


def estimate_head(shape: Shape, spec: RunSpec, lengths: Lengths) -> MemoryPart:
    """Logits: TRL's fused head multiplies tiles and keeps 8 numbers a token; its backward pass has the gradient of the head in fp32 where the head is
    trained. For a method that reads whole distributions, and in trainers without that head, the logits are built: two copies at least (they and
    their gradient), three in fp32 at most."""
    if isinstance(spec.training, Reward):
        return part_of("logits", 0, "none: a reward model has one number a sequence")
    low, high = (count_sequences(spec) * tokens for tokens in lengths.completion)
    width = HALF if computes_in_half(spec) else FULL
    if builds_logits(spec):
        words = f"sequences × tokens × vocabulary × {2 * width} to {3 * FULL} bytes: they are built whole"
        return MemoryPart("logits", round(low * shape.vocabulary * 2 * width), round(high * shape.vocabulary * 3 * FULL), words)
    sizes = [min(tokens, TILE[0]) * min(shape.vocabulary, TILE[1]) * width + tokens * (8 + shape.width) * FULL for tokens in (low, high)]
    trained = shape.vocabulary * shape.width * FULL if spec.lora is None else 0
    return MemoryPart(
        "logits", round(sizes[0]), round(sizes[1]) + trained, "a tile of the fused head, and the gradient of the head where it is trained"
    )


def builds_logits(spec: RunSpec) -> bool:
    """TRL's experimental trainers have no fused head."""
    if isinstance(spec.training, ORPO | CPO | OnlineDPO):
        return True
    return any("logits" in entry.get("needs", ()) for entry in entries_for(spec).values())


def estimate_cache(shape: Shape, spec: RunSpec, lengths: Lengths) -> MemoryPart:
    """Keys and values while completions are sampled here."""
    training = spec.training
    if not isinstance(training, Rollouts) or uses_vllm(spec):
        return part_of("KV cache", 0, "none here")
    return size_cache(shape, spec, lengths)


def size_cache(shape: Shape, spec: RunSpec, lengths: Lengths) -> MemoryPart:
    """Keys and values of the completions that are sampled together. With fp32 weights and autocast, keys that were rotated in fp32 stay so."""
    assert isinstance(spec.training, Rollouts)
    numbers = 2 * shape.layers * shape.key_value_heads * shape.head_width * spec.training.generation_batch_size()
    width = HALF if computes_in_half(spec) else FULL
    low, high = (numbers * tokens for tokens in lengths.sequence)
    words = "completions sampled together × tokens × keys and values of all layers"
    return MemoryPart("KV cache", round(low * width), round(high * (width if spec.lora is not None else FULL)), words)


def uses_vllm(spec: RunSpec) -> bool:
    return isinstance(spec.training, GroupRollouts) and spec.training.uses_vllm


def estimate_vllm(parameters: int, shape: Shape, spec: RunSpec, lengths: Lengths, device_memory: int) -> MemoryPart:
    """vLLM has weights in bf16 of its own and its KV cache. TRL lets it reserve a share of the GPU, which has to hold both."""
    if not (isinstance(spec.training, GroupRollouts) and spec.training.generation == "colocate"):
        return part_of("vLLM", 0, "none on this GPU")
    least = parameters * HALF
    share = max(round(VLLM_SHARE * device_memory), least)
    if device_memory:
        return part_of("vLLM", share, f"{VLLM_SHARE:.0%} of the GPU's memory, at least parameters × 2 bytes")
    return MemoryPart("vLLM", least, least + size_cache(shape, spec, lengths).low, "parameters × 2 bytes, and its KV cache")
