"""An estimate of the memory that training a model takes on one device, as a range: what does not depend on the data, and what a batch adds."""

from __future__ import annotations

from dataclasses import dataclass

from trainers.checks.model_facts import ModelFacts, Shape
from trainers.contract.hyperparameters import DPO, KTO, SFT, GroupRollouts, OnlineDPO, Pairs, Preferences, Reward, Rollouts
from trainers.contract.spec import RunSpec

FULL, HALF = 4, 2  # bytes of a number
SPARE = 1.1  # blocks that the allocator cannot use


@dataclass(frozen=True)
class MemoryPart:
    """``low`` and ``high`` in bytes; ``formula`` in words."""

    name: str
    low: int
    high: int
    formula: str


@dataclass(frozen=True)
class Lengths:
    """Tokens of a sequence and, of these, of its completion: ``low`` and ``high``."""

    sequence: tuple[float, float]
    completion: tuple[float, float]


def estimate_training_memory(facts: ModelFacts, spec: RunSpec, prompt_tokens: int) -> list[MemoryPart]:
    """The parts, their sum last; none where parameters or sizes are not known.

    Weights, gradients and the two moments of AdamW in fp32 are 4 + 4 + 8 bytes a parameter (ZeRO, arXiv 1910.02054, section 3.1; the trainers keep
    fp32 weights and compute in bf16 by autocast). Under LoRA the weights are frozen, in bf16 on a GPU, and only r x (in + out) parameters of each
    linear layer are trained (arXiv 2106.09685). A reference policy is one more copy of the weights; adapters are switched off in its place.
    Activations of a layer are 34 x tokens x width bytes in bf16 (arXiv 2205.05198, section 4.1, without its attention matrix, which
    scaled_dot_product_attention does not keep), more where the feed-forward part is gated: 17 x width + 8 x inner. With gradient checkpointing only
    each layer's input is kept, and one layer at a time is whole. Logits are sequences x tokens x vocabulary: two copies at least (they and their
    gradient), three in fp32 at most. Rollouts keep 2 x layers x key-value width numbers a token. Rollouts and training follow each other: the larger
    counts. ``low`` takes completions of half the length allowed, ``high`` whole ones and a tenth for the allocator. The CUDA context (about half a
    GiB), vLLM's own memory and methods that keep copies are left out.
    """
    if facts.parameters is None or facts.shape is None:
        return []
    states = estimate_states(facts.parameters, facts.shape, spec)
    lengths = find_lengths(spec, prompt_tokens)
    batch = [estimate_activations(facts.shape, spec, lengths), estimate_logits(facts.shape, spec, lengths)]
    rollouts = estimate_rollouts(facts.shape, spec, lengths)
    low = sum(part.low for part in states) + max(sum(part.low for part in batch), rollouts.low)
    high = sum(part.high for part in states) + max(sum(part.high for part in batch), rollouts.high)
    total = MemoryPart("total", low, round(high * SPARE), "the states, and the larger of rollouts or activations and logits")
    return [part for part in (*states, *batch, rollouts) if part.high] + [total]


def computes_in_half(spec: RunSpec) -> bool:
    """As far as one can say before a device is known: auto is bf16 on the GPUs that models of a hub need."""
    return spec.device != "cpu" and spec.precision != "fp32"


def estimate_states(parameters: int, shape: Shape, spec: RunSpec) -> list[MemoryPart]:
    """Weights, gradients, moments and reference: the same at every step."""
    if spec.lora is not None:
        width = HALF if computes_in_half(spec) else FULL
        trained = count_adapter_parameters(shape, spec.lora.r)
        weights = part_of("weights", parameters * width + trained * FULL, f"parameters × {width} bytes, and the adapters' × 4")
        words = "adapters' parameters"
    else:
        trained = parameters
        weights = part_of("weights", parameters * FULL, "parameters × 4 bytes (fp32)")
        words = "parameters"
    training = spec.training
    refers = isinstance(training, DPO | KTO | OnlineDPO) or (isinstance(training, GroupRollouts) and training.beta > 0)
    reference = parameters * FULL if refers and spec.lora is None else 0
    return [
        weights,
        part_of("gradients", trained * FULL, f"{words} × 4 bytes"),
        part_of("optimizer", trained * 2 * FULL, f"{words} × 8 bytes (two moments of AdamW)"),
        part_of("reference policy", reference, "parameters × 4 bytes"),
    ]


def part_of(name: str, size: int, formula: str) -> MemoryPart:
    return MemoryPart(name, size, size, formula)


def count_adapter_parameters(shape: Shape, rank: int) -> int:
    """Of adapters on every linear layer: queries, keys, values, output, and a gated feed-forward part."""
    queries, keys = shape.heads * shape.head_width, shape.key_value_heads * shape.head_width
    attention = 2 * (shape.width + queries) + 2 * (shape.width + keys)
    return shape.layers * rank * (attention + 3 * (shape.width + shape.inner))


def find_lengths(spec: RunSpec, prompt_tokens: int) -> Lengths:
    training = spec.training
    if isinstance(training, Rollouts):
        longest = training.max_completion_length
        return Lengths((prompt_tokens + longest / 2, prompt_tokens + longest), (longest / 2, longest))
    assert isinstance(training, SFT | Preferences)
    return Lengths((training.max_length / 2, training.max_length), (training.max_length / 2, training.max_length))


def count_sequences(spec: RunSpec) -> int:
    """Of one forward pass; a pair is two."""
    training = spec.training
    return training.per_device_train_batch_size * (2 if isinstance(training, Pairs | OnlineDPO) else 1)


def estimate_activations(shape: Shape, spec: RunSpec, lengths: Lengths) -> MemoryPart:
    scale = 1.0 if computes_in_half(spec) else FULL / HALF
    plain, gated = 34 * shape.width, 17 * shape.width + 8 * shape.inner  # bytes a token and layer in bf16
    sizes = []
    for one, tokens in zip(sorted((plain, gated)), lengths.sequence, strict=True):
        layers = 2 * shape.width * shape.layers + one if spec.training.gradient_checkpointing else one * shape.layers
        sizes.append(round(scale * count_sequences(spec) * tokens * layers))
    words = "sequences × tokens × layers × 34 × width, or 17 × width + 8 × inner"
    if spec.training.gradient_checkpointing:
        words = "sequences × tokens × layers × 2 × width, and one layer whole"
    return MemoryPart("activations", sizes[0], sizes[1], words)


def estimate_logits(shape: Shape, spec: RunSpec, lengths: Lengths) -> MemoryPart:
    if isinstance(spec.training, Reward):
        return part_of("logits", 0, "none: a reward model has one number a sequence")
    low, high = (count_sequences(spec) * tokens * shape.vocabulary for tokens in lengths.completion)
    width = HALF if computes_in_half(spec) else FULL
    return MemoryPart("logits", round(low * 2 * width), round(high * 3 * FULL), f"sequences × tokens × vocabulary × {2 * width} to {3 * FULL} bytes")


def estimate_rollouts(shape: Shape, spec: RunSpec, lengths: Lengths) -> MemoryPart:
    """Keys and values while completions are sampled."""
    training = spec.training
    if not isinstance(training, Rollouts) or (isinstance(training, GroupRollouts) and training.use_vllm):
        return part_of("rollouts", 0, "none here")
    numbers = 2 * shape.layers * shape.key_value_heads * shape.head_width * training.generation_batch_size()
    width = HALF if computes_in_half(spec) else FULL
    low, high = (numbers * tokens for tokens in lengths.sequence)
    return MemoryPart("rollouts", round(low * width), round(high * FULL), "completions sampled together × tokens × keys and values of all layers")
