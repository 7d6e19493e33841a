"""The estimate of memory held against what torch keeps, what would fit where a run does not, and what a machine has to have."""

from typing import Any

import pytest
import torch
from peft import get_peft_model
from transformers.models.llama import LlamaConfig, LlamaForCausalLM
from transformers.models.qwen3 import Qwen3Config, Qwen3ForCausalLM

from tests.trainers.conftest import events_in
from tests.trainers.conftest import make_spec as make_small_spec
from tests.trainers.hub_of_models import QWEN, QWEN_PARAMETERS
from tests.trainers.test_model_checks import FACTS, make_spec
from trainers.attempt import train
from trainers.checks.memory_remedy import change_spec, find_memory_remedy
from trainers.checks.model_facts import ModelAnswer, Shape, read_model_facts
from trainers.checks.model_memory import (
    Lengths,
    count_adapter_parameters,
    count_layer_parameters,
    estimate_activations,
    estimate_training_memory,
    estimate_working_copies,
)
from trainers.checks.preflight import run_preflight_checks
from trainers.contract.events import AttemptStarted, Memory
from trainers.contract.machine import Machine
from trainers.contract.spec import Lora
from trainers.policies.loading import build_lora_config

GIB = 2**30
SIZES = {"hidden_size": 192, "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 40, "intermediate_size": 584, "vocab_size": 300}
TOKENS, SEQUENCES = 500, 2
GPU = Machine("worker gpu1", True, 24 * GIB, ("bitsandbytes",))


def measure_saved_bytes(kind: Any, layers: int, half: bool, adapted: bool, attention: str) -> tuple[int, int]:
    """Of what a forward pass keeps for its backward pass: activations, and copies of matrices."""
    config_of = {Qwen3ForCausalLM: Qwen3Config, LlamaForCausalLM: LlamaConfig}[kind]
    model: Any = kind(config_of(**SIZES, num_hidden_layers=layers, attn_implementation=attention))
    if adapted:
        model = get_peft_model(model.to(torch.bfloat16 if half else torch.float32), build_lora_config(Lora(r=2, alpha=4)))
    own = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    kept: dict[int, tuple[int, tuple[int, ...]]] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = (storage.nbytes(), tuple(tensor.shape))
        return tensor

    ids = torch.randint(0, 300, (SEQUENCES, TOKENS))
    there = torch.ones_like(ids)
    there[0, :5] = 0
    backbone = model.base_model.model.model if adapted else model.model
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor), torch.autocast("cpu", torch.bfloat16, enabled=half):
        backbone(ids, attention_mask=there)
    matrices = {192, 584, 240, 80}
    copies = sum(size for size, shape in kept.values() if len(shape) == 2 and set(shape) <= matrices)
    return sum(size for size, _ in kept.values()) - copies, copies


@pytest.mark.parametrize("kind", [Qwen3ForCausalLM, LlamaForCausalLM])
@pytest.mark.parametrize(
    ("half", "adapted", "attention"), [(True, False, "sdpa"), (True, True, "sdpa"), (False, False, "sdpa"), (True, False, "eager")]
)
def test_activations_are_what_torch_keeps(kind: Any, half: bool, adapted: bool, attention: str) -> None:
    one, two, three = (measure_saved_bytes(kind, layers, half, adapted, attention) for layers in (1, 2, 3))
    assert two[0] - one[0] == pytest.approx(three[0] - two[0], rel=0.02)
    shape = Shape(1, 192, 6, 2, 40, 584, 300)
    lora = {"lora": {"r": 2}} if adapted else {}
    training = {"per_device_train_batch_size": SEQUENCES, "num_generations": 2}
    spec = make_spec(training=training, precision="bf16" if half else "fp32", attn_implementation=attention, **lora)
    part = estimate_activations(shape, spec, Lengths((TOKENS, TOKENS), (TOKENS, TOKENS)))
    assert 0.97 * part.low <= two[0] - one[0] <= 1.03 * part.high
    assert part.high < 1.5 * part.low, "a range that says something"
    if half and not adapted:
        assert two[1] - one[1] == estimate_working_copies(shape, spec).high == 2 * count_layer_parameters(shape)


def test_four_bits_take_an_eighth_of_the_layers_and_leave_embeddings() -> None:
    shape = FACTS.shape
    assert shape is not None
    parts = {part.name: part.high for part in estimate_training_memory(FACTS, make_spec(lora={"r": 16, "quantize": True}), 60)}
    matrices, trained = count_layer_parameters(shape), count_adapter_parameters(shape, 16)
    assert parts["weights"] == round(matrices * 0.516) + 2 * (QWEN_PARAMETERS - matrices) + 2 * trained
    assert (parts["gradients"], parts["optimizer"]) == (2 * trained, 4 * trained)


def test_vllm_takes_a_share_of_the_gpu() -> None:
    spec = make_spec(training={"generation": "colocate"})
    known = {part.name: part for part in estimate_training_memory(FACTS, spec, 60, 80 * GIB)}
    assert known["vLLM"].low == known["vLLM"].high == round(0.3 * 80 * GIB)
    assert "KV cache" not in known
    unknown = {part.name: part for part in estimate_training_memory(FACTS, spec, 60)}
    assert 2 * QWEN_PARAMETERS == unknown["vLLM"].low < unknown["vLLM"].high


@pytest.mark.parametrize(
    ("gib", "words"),
    [
        (40, None),  # it fits as it is
        (13, "gradient checkpointing"),
        (11.45, "gradient checkpointing and 2 sequences per forward pass"),
        (2.6, "LoRA r=16 with gradient checkpointing"),
        (0.1, None),  # nothing would
    ],
)
def test_the_least_change_that_fits_is_offered(gib: float, words: str | None) -> None:
    spec = make_spec(training={"per_device_train_batch_size": 32, "max_completion_length": 128})
    remedy = find_memory_remedy(FACTS, spec, 60, int(gib * GIB), can_quantize=False)
    assert (remedy.words if remedy else None) == words
    if remedy:
        changed = change_spec(spec, remedy.changes)
        total = estimate_training_memory(FACTS, changed, 60, int(gib * GIB))[-1]
        assert (total.low, total.high) == (remedy.low, remedy.high)
        assert total.high <= gib * GIB
        assert changed.training.learning_rate == (1e-5 if changed.lora else spec.training.learning_rate)


def test_smaller_forward_passes_keep_the_batch_and_four_bits_come_last() -> None:
    large = read_model_facts(
        QWEN | {"hidden_size": 4096, "num_hidden_layers": 36, "intermediate_size": 12_288}, "hub", 8_190_735_360, "the hub", True
    )
    spec = make_spec(training={"per_device_train_batch_size": 64, "max_completion_length": 256, "gradient_accumulation_steps": 2})
    assert find_memory_remedy(large, spec, 60, 16 * GIB, can_quantize=False) is None
    remedy = find_memory_remedy(large, spec, 60, 16 * GIB, can_quantize=True)
    assert remedy is not None
    assert remedy.words.startswith("QLoRA r=16")
    training = change_spec(spec, remedy.changes).training
    assert training.per_device_train_batch_size * training.gradient_accumulation_steps == 128


def test_the_report_offers_it_for_the_machine_that_trains() -> None:
    spec = make_spec(training={"per_device_train_batch_size": 32, "max_completion_length": 128})
    report = run_preflight_checks(spec, model=ModelAnswer(FACTS), machine=Machine("worker gpu1", True, 13 * GIB)).as_json()
    assert report["model"]["available"] == 13 * GIB
    assert report["model"]["remedy"]["changes"] == {"training.gradient_checkpointing": True}
    assert run_preflight_checks(spec, model=ModelAnswer(FACTS)).as_json()["model"]["remedy"] is None, "nobody knows how much there is"


@pytest.mark.parametrize(
    ("parts", "machine", "said"),
    [
        ({"lora": {"quantize": True}}, Machine("worker a", True), ("lora.quantize", "bitsandbytes is not installed on worker a", "pip install")),
        ({"lora": {"quantize": True}}, Machine("worker a", False, 0, ("bitsandbytes",)), ("lora.quantize", "worker a has none", "GPU worker")),
        ({"lora": {"quantize": True}, "precision": "fp32"}, GPU, ("lora.quantize", "computed with in bf16", "auto or bf16")),
        ({"lora": {"quantize": True}, "device": "cpu"}, GPU, ("lora.quantize", "the device is cpu", "auto or cuda")),
        ({"attn_implementation": "flash_attention_2"}, GPU, ("attn_implementation", "flash-attn is not installed", "use sdpa")),
        ({"use_liger_kernel": True}, GPU, ("use_liger_kernel", "liger-kernel is not installed", "turn Liger kernels off")),
        ({"lora": {"quantize": True}}, GPU, None),
        ({"attn_implementation": "eager"}, Machine("worker a", False), None),
    ],
)
def test_what_a_machine_has_not_got_is_refused_in_words(parts: dict[str, Any], machine: Machine, said: tuple[str, str, str] | None) -> None:
    problems = run_preflight_checks(make_spec(**parts), machine=machine).problems
    if said is None:
        assert problems == []
        return
    field, message, fix = said
    assert any(one.field == field and message in one.message and fix in one.fix for one in problems), problems


@pytest.mark.training
def test_an_attempt_reports_its_estimate_and_what_it_took(tmp_path: Any) -> None:
    spec = make_small_spec(tmp_path, "sft", policy={"kind": "tiny", "cold_start": False}, training__max_steps=2)
    assert train.run_training(spec, tmp_path) == train.FINISHED
    before, after_one, at_the_end = (event for event in events_in(tmp_path) if isinstance(event, Memory))
    assert before.parts == at_the_end.parts
    parts = {part.name: part.high for part in at_the_end.parts}
    assert parts["weights"] == 4 * next(event.parameters for event in events_in(tmp_path) if isinstance(event, AttemptStarted))
    assert parts["total"] > parts["weights"]
    assert 0 < before.peak <= after_one.peak <= at_the_end.peak
    assert at_the_end.measured == ("cuda" if torch.cuda.is_available() and spec.device != "cpu" else "process")
